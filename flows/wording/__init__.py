"""Wording of everything that people read.

- `text`: wording of losses, counts, fidelities, durations and failures
"""
