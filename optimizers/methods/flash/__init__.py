"""FLASH (Zhang et al. 2016): the `declaration`, its `options`, and `flash`, the method.

Its phases are `initial_design`, `pruning` and `tuning`, as long as `phase_lengths` says.
`path_models` are its tables and models of the paths, `scores` what they expect of each, and `memo`
all that one ask hands to the next.
"""
