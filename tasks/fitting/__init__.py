"""Fitting one step on one fold.

`fitting` does what a `recipe` says. `effective_values` fits hyperparameters to the data,
`memory_estimate` refuses what cannot fit in memory, `matrix_summary` is what both know of a matrix,
and `libraries` says which versions enter keys, with the digest of our `own_code`. Models that are
`iterative` have a `training` in epochs; `staged` predicts from an ensemble as it was after some of
them. `final_scoring` scores the final model on the test rows. `program_exits` of estimators are
errors.
"""
