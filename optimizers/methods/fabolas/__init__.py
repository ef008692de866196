"""Fabolas (Klein et al. 2017): learns on small subsets, decides for the full data.

`fabolas` is the method, with its `declaration`. Its asks are a `first_design` on the `sizes`, then
a `turn` each: confirm, verify or `search`. `observations` are what a `belief` is learned from by
`inference`; a belief is a few draws of a `posterior`. A `gate` closes when subsets tell nothing,
and `decisions` rank what was evaluated and describe the choice. A `recipe` holds the differences
between methods of this family, `rules` are their numbers, and `references` are the methods that the
paper compares.
"""
