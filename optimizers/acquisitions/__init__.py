"""Acquisition functions: the value of a candidate by a surrogate's mean and deviation.

`expected_improvement` has four forms: plain, for log losses, with penalties and constraints, and
jointly for several candidates. `entropy` measures the information gained about the minimiser.
`gaussian_search` finds the best candidates.
"""
