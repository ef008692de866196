"""ADMM (Liu, Ram et al. 2020): the `declaration`, its `options`, and `admm`, the method.

`theta_min` tunes one path, `path_solvers` choose one, `splitting` is the arithmetic that pulls the
two together, and `positions` and `state` say where the search stands.
"""
