"""BAPI (Belakaria et al. 2022). The method is in `bapi`.

Each ask starts an initial training run, resumes an earlier run, or chooses from a plan. `planning`
plans the remaining budget with a `belief`, which is fitted to a few points of each learning curve
from `curves`.
"""
