"""Words and numbers as texts, for all that people read.

- `text`: losses, counts, fidelities, durations and failures
"""
