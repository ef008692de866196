"""Acquisition functions: the value of a candidate by a surrogate's mean and deviation.

`expected_improvement` has the plain form, the form for log losses, the form with penalties and
constraints, and the joint form of several candidates. `entropy` has the information gained about
the minimiser. `gaussian_search` finds the best candidates.
"""
