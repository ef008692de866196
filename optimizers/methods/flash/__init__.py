"""FLASH (Zhang et al. 2016): an initial design, pruning and tuning. The method is in `flash`.

`design` numbers the paths of a space and orders their first runs, and `scores` ranks paths by
linear models. `shared_values` handles hyperparameters that all paths share, and is also used by
ADMM. `cost` predicts the run time of a path from the cached steps.
"""
