"""Acquisition functions: the value of a candidate by a model's mean and deviation.

`improvement` has four forms: plain, for log losses, with penalties and constraints, and jointly for
several candidates. `entropy` measures the information gained about the minimiser. `maximise` finds
the best candidates.
"""
