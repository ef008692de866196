"""Trials, and the data that models are fitted to.

A `trial` has a state and ends with an `outcome`. `history` has all trials, imputes losses of failed
trials, and estimates the number of trials that a budget affords. `earlier` has the observations of
earlier runs and their weights. `objective` has the metric, the constraints and the bootstraps.
"""
