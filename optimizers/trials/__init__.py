"""Trials, and the data to which models are fitted.

A `trial` has a state and ends with an `outcome`. `history` records all trials, imputes losses of
failed trials, and estimates the number of trials that a budget affords. `earlier` weights the
observations of earlier runs. `objective` describes the metric, the constraints and the bootstraps.
"""
