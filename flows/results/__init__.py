"""Results of a study, for those who go on with them elsewhere.

`loaded_study` has them all, in Python. A `trial_table` has a row for each trial, an `optuna_study`
is the same for Optuna; `params` are flat for both, and the `timeline` says when and why. One trial
is `explained`, its `built_pipeline` is an estimator or code, and its output is `printed`. Readers
of trials by their space use the `space_as_run`. The final model is `exported`, with the
`card_facts` of a model card.
"""
