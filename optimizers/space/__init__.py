"""The search space: steps, their algorithms, and configurations as values or vectors.

A `space` has steps, and a step has one or more algorithms (see `algorithm`). If several paths
define the same pipeline, one of the paths is canonical. `configuration` defines configurations and
queries. `sampling` draws and lists configurations. `vectors` encodes many configurations at once,
and finds their neighbors.
"""
