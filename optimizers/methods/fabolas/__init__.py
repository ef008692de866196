"""Fabolas (Klein et al. 2017): learns on small subsets, decides for the full data.

`sizes` are the subsets that it may ask for, and `first_design` is how it begins on them.
"""
