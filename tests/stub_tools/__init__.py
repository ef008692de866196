"""Tools that need no search, for tests of what runs, scores and ranks tools.

`guessing` says what most training rows have, `knowing` copies the nearest training row.
"""
