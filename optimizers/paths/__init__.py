"""Paths, for methods that reason about them.

`table` numbers the paths of a space and says which to run first; `shared_values` are
hyperparameters that most paths have in common; `cost` predicts what a path takes, where prefixes
are cached, from measured `step_seconds`.
"""
