"""Paths, for methods that reason about them.

`table` numbers the paths of a space, `design` says which to run first, `cost` predicts what one
takes from measured `step_seconds`, where `prefixes` are cached, in the `running_order` of the
steps, and `shared_steps` are those that all have in common.
"""
