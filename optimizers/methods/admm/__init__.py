"""ADMM (Liu, Ram et al. 2020). The method is in `admm`.

After the first paths, `values` tunes one path, and `paths` chooses the next path. `splitting`
contains the arithmetic that couples the two steps, and the state kept between asks.
"""
