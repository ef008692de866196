"""Comparing methods: what enters, how the replicates stand, and who leads.

`prepare` enters a `comparison` of methods, with their options, in the ledger. `session` runs the
replicates of a comparison, each a `replicate`. Their `curves` are ranked by `standings`, also those
of several comparisons, with `pairwise` statistics of the methods.
"""
