"""Terminal output, one module per subject.

- `study`, `trial`, `artifact`, `comparison`: contents of a store
- `live`: a running study
- `exported`: an exported model with its requirements
- `console`: the terminal that all views print to
- `result_stream`: standard output, reserved for results
"""
