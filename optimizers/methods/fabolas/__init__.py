"""Fabolas (Klein et al. 2017): predicts the best pipeline from small subsets of the rows.

`fabolas` contains the method and the reference methods of the paper. `subsets` defines the sizes of
subsets and the basis functions. `belief` models losses and run times, and `search` finds the next
query. `gate` decides whether subsets are informative, and describes decisions. `rules` defines the
options and constants.
"""
