"""The sections of a study's report, in the order of readers' questions.

- `model`: quality on the test rows, importance of columns, data, members.
- `search`: progress, importance of choices, paths, costs, decisions, times of steps, failures.
"""
