"""Comparisons of methods: an ordinary study for each repeat and method, and the standings.

- `comparison`: the methods to compare, and the preparation of their studies.
- `session`: runs the studies, several at a time.
- `curves`: tables with the best loss after each trial, in memory and in files.
- `standings`: ranks of the methods, and the permutation test.
"""
