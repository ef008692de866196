"""Fabolas (Klein et al. 2017): learns from small subsets of the rows which pipeline is best on all.

`fabolas` contains the method and the reference methods of the paper. `subsets` has the sizes of
subsets and the basis functions. `belief` has the models of losses and run times, and `search` finds
the next query. `gate` decides whether subsets are informative, and describes decisions. `rules` has
the options and constants.
"""
