"""BAPI (Belakaria et al.): its `declaration`, and `bapi`, the method.

An ask is a `turn`: the next initial training, a told training that is resumed, or the choice of a
plan. The `planning` spends the rest of the budget by a belief in `curves` and `costs`, which the
`learner` fits to few points of each curve. `decisions` are the answer, how trainings ended, and
advice.
"""
