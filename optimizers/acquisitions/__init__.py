"""Acquisition functions: how good a candidate is by a surrogate's mean and deviation.

`expected_improvement` has the plain one, the one of a loss whose logarithm is predicted, the one
with penalties and constraints, and the joint one of candidates chosen together; `entropy` has the
information gained about the minimiser. `gaussian_search` finds the best candidates.
"""
