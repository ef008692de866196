"""Comparisons of methods: entrants, replicates and standings.

`prepare` records a `comparison` of methods and their options in the ledger. `session` runs every
`replicate` of it. `standings` ranks the methods by their `curves`, also across several comparisons,
and adds `pairwise` statistics.
"""
