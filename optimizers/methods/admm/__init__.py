"""ADMM (Liu, Ram et al. 2020): the `declaration` with its options, and `admm`, the method.

After the first paths, `theta_min` tunes one path, `z_min` chooses one by `path_solvers`,
`splitting` is the arithmetic that pulls the two together, and `positions` and `state` say where the
search stands.
"""
