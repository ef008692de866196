"""Paths, for methods that reason about them.

`design` numbers the paths of a space and orders their first runs. `shared_values` are
hyperparameters that most paths have in common. `cost` predicts the seconds of a path, given cached
prefixes, from predicted seconds of its steps.
"""
