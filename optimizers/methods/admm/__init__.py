"""ADMM (Liu, Ram et al. 2020): the `declaration` with its options, and `admm`, the method.

After the first paths, `theta_min` tunes one path and `z_min` chooses the next. `splitting` has the
arithmetic that couples the two, and `state` passes from one ask to the next.
"""
