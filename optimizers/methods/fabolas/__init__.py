"""Fabolas (Klein et al. 2017): learns from small subsets, decides for the full data.

`fabolas` is the method, with the methods that the paper compares. `subsets` are its sizes and basis
functions. It learns a `belief` from results, and a `search` finds the next query. The `gate` drops
subsets that are not informative, and describes decisions. `rules` are options and constants.
"""
