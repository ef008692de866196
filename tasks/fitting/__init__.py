"""Fitting one step on one fold.

`fitting` fits the estimator of a `recipe`, which has the hyperparameters adapted to the data, and
an estimate of the memory. `epochs` trains iterative models.
"""
