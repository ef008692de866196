"""The search space: steps of algorithms, and a choice among them as a value or a vector.

A `space` has steps, and a step has one `algorithm` or more. Of all paths that make the same
pipeline, one is canonical. A `configuration` is one choice, with its active
hyperparameters and the fidelity of its query; `sampling` draws and lists configurations.
`unit_interval` and `candidate_space` turn them into vectors, many at once, with their neighbours.
`wording` shows values, and suggests the nearest known name for an unknown one.
"""
