"""SMAC (Hutter et al. 2011): its `declaration`, and `smac`, the method.

`forest_search` is the search, which FLASH and ADMM use too.
"""
