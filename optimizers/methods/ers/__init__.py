"""Ensembles of random configurations: their `declaration`, and `ers`, the method."""
