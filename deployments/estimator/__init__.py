"""The search as an estimator of scikit-learn.

`pipeline_search` has the class; its `training_rows` become a DataFrame, which `tune` searches on,
and `trial_columns` are what `cv_results_` shows of the trials.
"""
