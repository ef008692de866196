"""FLASH (Zhang et al. 2016): `flash` is the method, with an initial design, pruning and tuning.

`design` numbers the paths of a space and orders their first runs, and `scores` ranks them by linear
models. `shared_values` are hyperparameters that most paths have in common; ADMM tunes them too.
`cost` predicts the seconds of a path, given cached prefixes.
"""
