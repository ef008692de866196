"""SMAC (Hutter et al. 2011): `forest_search` is the search, which FLASH and ADMM use too."""
