"""Comparing methods: what enters, how the replicates stand, and who leads."""
