"""Text for people, a module per subject.

`study`, `trial`, `artifact` and `comparison` print what a store has. `live` follows a
running study, with `live_lines` on a terminal. All print to one `console`, and commands keep
standard output for their `result_stream`. A model that was `exported` is shown with its needs.
"""
