"""Acquisition functions, which score a candidate by the prediction of a model, and their maximizer.

`improvement` has expected improvement in four forms: plain, for log losses, with penalties and
constraints, and jointly for several candidates. `entropy` has the information gained about the
minimizer. `maximize` finds the best candidates.
"""
