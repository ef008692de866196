"""Trials, and the data that models are fitted to.

A `trial` has a state and ends in an `outcome`. `history` stores all trials, imputes losses of
failed trials, and estimates how many more a budget affords. `earlier` has observations of earlier
runs, with their weight. `objective` is the loss with its constraints and bootstraps.
"""
