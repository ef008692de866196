"""The sections of a study's report; each is yielded if it has data.

- `search`: progress, paths, importance, fidelities, decisions.
- `model`: members, quality, codes.
- `costs`: times of steps, failures, trade-offs.
"""
