"""BOHB (Falkner et al. 2018): its `declaration`, and `bohb`, the method.

`densities` are those of good and of bad configurations in a conditional space.
"""
