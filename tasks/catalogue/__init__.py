"""Algorithms and spaces as data, each algorithm stated once and reused.

One file per step of the papers' pipelines; `spaces` puts them together.
"""
