"""Fabolas (Klein et al. 2017): learns on small subsets, decides for the full data.

`fabolas` is the method, with its `declaration`, and the methods that the paper compares. Its asks
are a `first_design` on the sizes of its `recipe`, then a `turn` each: confirm, verify or `search`.
`observations` are what a `belief` is learned from by `inference`. `decisions` give subsets up when
they tell nothing, rank what was evaluated and describe the choice. `rules` are the numbers.
"""
