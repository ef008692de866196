"""Fabolas (Klein et al. 2017): learns from small subsets, decides for the full data.

`fabolas` is the method, with its `declaration` and the methods that the paper compares. Its first
asks are a `first_design` on the sizes of its `recipe`. Later asks are a `turn` each: confirm,
verify or `search`. `inference` learns a `belief` from `observations`. `decisions` drop subsets that
are not informative, rank configurations and describe the choice. `rules` are the constants.
"""
