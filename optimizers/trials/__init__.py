"""Trials and what models are fitted on.

A `trial` has a state and ends in an `outcome`; `history` holds them all and knows how many more a
budget holds. `objective` is the loss with its constraints and bootstraps. `losses` gives failed
trials a loss too, and counts in how many bootstraps each model is the best.
"""
