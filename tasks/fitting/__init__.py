"""Fitting one step on one fold.

`fitting` does what a `recipe` says, with hyperparameters fitted to the data. `memory_estimate`
refuses what cannot fit in memory, and `versions` says which versions of libraries and of our own
code enter keys. Models that are
`iterative` have a `training` in epochs. `final_scoring` scores the final model on the test rows,
and `column_effects` tells how it uses the columns made of events.
"""
