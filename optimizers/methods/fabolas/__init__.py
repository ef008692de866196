"""Fabolas (Klein et al. 2017): learns on small subsets, decides for the full data.

`declaration`, `options`, `rendering` of `decisions`, and `fabolas`, the method, whose asks are a
`first_design` on the `sizes`, and then a `turn` each: confirm, verify or `search`, on `subsets`.
`observations` are what a `belief` is learned from, by `inference`, on `bases` of the size; it is a
few draws of a `posterior`. A `standing` ranks what was evaluated, `predictions` are what was
expected of full evaluations, and a `gate` closes when subsets tell nothing. A `recipe` is what
methods of this family differ in.
"""
