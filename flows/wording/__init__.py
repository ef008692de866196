"""Texts that people read.

- `text`: texts for losses, counts, fidelities, durations and failures
"""
