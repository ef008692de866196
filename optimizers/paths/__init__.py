"""Paths, for methods that reason about them.

`table` numbers the paths of a space, `design` says which to run first, `cost` what one will take,
and `shared_steps` are those that all have in common.
"""
