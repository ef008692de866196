"""The search space: steps of algorithms, and a choice among them as a value or a vector.

A `space` has steps, and a step has one `algorithm` or more; `equal_paths` names the path that
stands for all paths of one pipeline. A `configuration` is one choice, with the hyperparameters that
are active in it and the fidelity of its query; `sampling` draws and lists them. `unit_interval` and
`candidate_space` turn them into vectors, many at once, with their neighbours.
`wording` shows them, and answers an unknown name with the nearest known one.
"""
