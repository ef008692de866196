"""Fitting one step on one fold.

`fitting` carries out a `recipe`, which has hyperparameters fitted to the data and an
estimate of the memory. `epochs` trains iterative models.
"""
