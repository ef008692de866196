"""Fitting one step on one fold.

`fitting` carries out a `recipe`, which has hyperparameters fitted to the data, repairs of the input
and an estimate of the memory. `epochs` trains iterative models.
"""
