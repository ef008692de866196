"""ADMM (Liu, Ram et al. 2020): `admm` is the method.

After the first paths, `values` tunes one path and `paths` chooses the next. `splitting` has the
arithmetic that couples the two, and the state that passes from one ask to the next.
"""
