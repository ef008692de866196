"""The search space: steps of algorithms, and a choice among them as a value or a vector.

A `space` has steps, and a step has one `algorithm` or more. Of all paths that make the same
pipeline, one is canonical. A `configuration` is one choice, with its active hyperparameters and the
fidelity of its query. `sampling` draws and lists configurations. `vectors` encodes them, many at
once, with their neighbours.
"""
