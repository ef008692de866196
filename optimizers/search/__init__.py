"""Acquisition functions, which score candidates by a model's predictions, and their maximizer.

`improvement` implements expected improvement in four forms: plain, for log losses, with penalties
and constraints, and jointly for several candidates. `entropy` implements the information gain about
the minimizer. `maximize` finds the best candidates.
"""
