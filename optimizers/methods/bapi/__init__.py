"""BAPI (Belakaria et al.): its `declaration` with `options`, and `bapi`, the method.

An ask is a `turn`: the `start`, trainings that are to be decided on (`stopping`), or a plan: the
`planning` of a `horizon` from a `belief` in `curves` and `costs`. A `learner` has it from
`observations`: few `points` of each curve, as `scores`. Which training is the answer is its
`standing`; `decisions` have a `rendering`, and `advice` is given while it searches.
"""
