"""FLASH (Zhang et al. 2016): `flash` is the method, `scores` its linear models of all paths."""
