"""Words and numbers as texts, for all that people read.

- `text`: losses, counts, fidelities, durations and failures
- `markdown`: lines and code of untrusted text
"""
