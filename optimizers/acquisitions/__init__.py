"""Acquisition functions: how good a candidate is by a surrogate's mean and deviation.

`expected_improvement` has the plain one, the one of a loss whose logarithm is predicted, and the
one with penalties and constraints. `joint_improvement` values candidates chosen together, and
`entropy` the information gained about the minimiser. `gaussian_search` finds the best candidates by
gradients; a `pool` has candidates without gradients.
"""
