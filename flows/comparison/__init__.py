"""Comparisons of methods: entrants, replicates and standings.

`prepare` enters a `comparison` of methods, with their options, in the ledger. `session` runs its
replicates, each a `replicate`. `standings` rank their `curves`, also across several comparisons,
with `pairwise` statistics of the methods.
"""
