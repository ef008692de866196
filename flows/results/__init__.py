"""Results of a study, for use elsewhere.

`loaded_study` has them all, in Python. A `trial_table` has a row for each trial, and an
`optuna_study` is the same for Optuna. A trial is `explained`, and its `built_pipeline` is an
estimator or code. The final model is `exported`, with a `model_card` whose words stand in its
template.
"""
