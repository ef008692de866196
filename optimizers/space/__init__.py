"""The search space: steps of algorithms, and a choice among them as a value or a vector.

A `space` has a `step` for each stage, a step an `algorithm` or more; `equal_paths` says which of
those that make one pipeline stands for all, `conditions` say which hyperparameters are active. A
`configuration` is one choice, a `query` what to run of it, with its `fidelity`; `sampling` draws
them, `enumeration` lists them, `rendering` shows them.
`encoding`, `columns` and `unit_interval` turn them into vectors (`grids` for discrete values),
`candidates` many at once, of a `candidate_space`, with `neighbours`. `naming` answers an unknown
name with the nearest known one.
"""
