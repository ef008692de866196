"""Comparing methods: what enters, how the replicates stand, and who leads.

`entrants` are the methods with their options. `prepare` enters a `comparison` in the ledger,
`session` runs its replicates, each a `replicate`. Their `curves` are ranked by `standings`, with
`pairwise` statistics of the methods, and `pooling` ranks those of several comparisons.
"""
