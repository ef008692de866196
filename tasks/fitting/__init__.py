"""Fitting one step on one fold.

`fitting` fits the estimator of a `recipe`, which adapts the hyperparameters to the data and
estimates the memory. `epochs` trains iterative models, and `stopping` ends the training of boosted
trees early.
"""
