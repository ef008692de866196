"""Paths, for methods that reason about them.

`table` numbers the paths of a space, says which to run first, and which steps all have in common;
`cost` predicts what a path takes, where prefixes are cached, from measured `step_seconds`.
"""
