"""BAPI (Belakaria et al.): `bapi` is the method.

An ask is a turn of the method: an initial training, the resumption of an earlier training, or a
choice from a plan. `planning` spends the rest of the budget, guided by the `belief`, which learns
from a few points of the `curves`.
"""
