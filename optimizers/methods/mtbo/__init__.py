"""Bayesian optimisation of two tasks: its `declaration`, and `mtbo`, the method."""
