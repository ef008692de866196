"""Terminal output, one module per subject.

`study`, `series`, `trial`, `artifact` and `comparison` print the contents of a store. `live` shows
a running study. All print to one `console`, and `result_stream` reserves standard output for
results. `exported` prints an exported model with its requirements.
"""
