"""BAPI (Belakaria et al.): its `declaration`, and `bapi`, the method.

An ask is a `turn`: an initial training, the resumption of an earlier training, or a choice from a
plan. `planning` spends the rest of the budget, guided by a belief in `curves` and `costs`. The
`learner` fits that belief to a few points of each curve. `decisions` choose the answer, describe
how trainings ended and give advice.
"""
