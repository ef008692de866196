"""Results of a study, for use in other programs.

`loaded_study` gives access to all of them from Python. A `trial_table` has one row per trial, and
an `optuna_study` is the equivalent for Optuna. The `built_pipeline` of a trial is an estimator or
code. The final model can `predict`, and is `exported` with a `model_card`.
"""
