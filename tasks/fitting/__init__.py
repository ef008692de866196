"""Fitting one step on one fold.

`fitting` carries out a `recipe`, with hyperparameters fitted to the data. `memory_estimate` rejects
steps that cannot fit in memory, and `versions` determines the versions of libraries and of our own
code in keys. `epochs` trains iterative models. `figures` show the quality of the final model on the
test rows, and how it uses the columns made of events.
"""
