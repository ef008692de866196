"""ADMM (Liu, Ram et al. 2020). The method is in `admm`.

After the first paths, `values` tunes one path, and `paths` chooses the next path. `splitting` has
the arithmetic that couples both steps, and the state that is kept between asks.
"""
