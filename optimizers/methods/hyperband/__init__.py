"""Hyperband (Li et al. 2018): its `declaration`, and `hyperband`, the method."""
