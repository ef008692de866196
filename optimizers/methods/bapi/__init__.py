"""BAPI (Belakaria et al.): its `declaration` with `options`, and `bapi`, the method.

An ask is a `turn`: the `start`, trainings that are to be decided on (`stopping`), or a plan: the
`planning` of a `horizon` from a `belief` in `curves`, of which few `points` are learned from, and
in `costs`. `decisions` of it have a `rendering`.
"""
