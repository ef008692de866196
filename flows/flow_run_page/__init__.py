"""The page of a study's flow run in Prefect: its progress, its trials, and a summary.

`page` follows the study and has a thread keep three artifacts up to date by `publishing`: the
`trials_table`, the `summary` with a `curve_picture` and the `failure_reasons`, and the progress.
What users and trials bring along is shown as `plain_text`.
"""
