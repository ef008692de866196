"""The sections of a study's report, in the order of a reader's questions.

- `model`: quality on the test rows, use of columns, data, members.
- `search`: progress, importance, paths, costs, decisions; times of steps, failures.
"""
