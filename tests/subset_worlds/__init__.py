"""Worlds of methods that learn on subsets.

- problems: spaces, trials, and twins of good and bad subsets
- beliefs: beliefs in them with parameters as given
"""
