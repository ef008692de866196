"""BAPI (Belakaria et al. 2022). The method is in `bapi`.

Each ask proposes an initial training, resumes an earlier training, or chooses from a plan.
`planning` plans the rest of the budget with a `belief`, which is learned from a few points of each
of the `curves`.
"""
