"""Results of a study for use in other programs.

- `loaded_study`: access to all results from Python
- `trial_table`: a table with one row per trial
- `optuna_study`: the equivalent study of Optuna
- `built_pipeline`: the pipeline of a trial, as an estimator or code
- `predict`: predictions with the final model
- `exported`: the final model as a file
- `model_card`: the card of an exported model
"""
