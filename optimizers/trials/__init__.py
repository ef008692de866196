"""Trials and what models are fitted on.

A `trial` has a `state` and ends in an `outcome`; `history` holds them all. `objective` is
what is minimised, `constraint` a bound besides. `told_losses` gives failed trials a loss too, and
`capacity` says how many trials a budget holds. `bootstraps` are resamples that evaluations have
risks in, and `agnostic` counts in how many of them each model is the best; `ties`
are losses that differ by rounding alone.
"""
