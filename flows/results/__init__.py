"""Results of a study, for use elsewhere.

`loaded_study` has them all, in Python. A `trial_table` has a row for each trial, and an
`optuna_study` is the same for Optuna. The `built_pipeline` of a trial is an estimator or code.
The final model can `predict`, and is `exported` with a `model_card`.
"""
