"""FLASH (Zhang et al. 2016): `flash` is the method, with an initial design, pruning and tuning.

`scores` ranks the paths by linear models.
"""
