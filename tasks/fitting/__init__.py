"""Fitting one step on one fold.

`fitting` carries out a `recipe`, which has hyperparameters fitted to the data, repairs of the input
and an estimate of the memory. `epochs` trains iterative models. `figures` show the quality of the
final model on the test rows, and how it uses the columns made of events.
"""
