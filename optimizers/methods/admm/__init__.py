"""ADMM (Liu, Ram et al. 2020): the `declaration` with its options, and `admm`, the method.

After the first paths, `theta_min` tunes one path, `z_min` chooses one, `splitting` is the
arithmetic that pulls the two together, and `state` says where the search stands.
"""
