"""The search as a scikit-learn estimator.

`pipeline_search` has the class. `training_rows` converts X and y to the DataFrame that `tune`
searches on, and `trial_columns` converts trials to `cv_results_`.
"""
