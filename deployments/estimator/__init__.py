"""The scikit-learn estimator that runs a search.

- `pipeline_search`: the estimator
- `training_rows`: conversion of X and y to the DataFrame that `tune` takes
- `trial_columns`: conversion of trials to `cv_results_`
"""
