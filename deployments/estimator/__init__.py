"""The search as a scikit-learn estimator.

- `pipeline_search`: the estimator
- `training_rows`: X and y as the DataFrame that `tune` searches on
- `trial_columns`: trials as `cv_results_`
"""
