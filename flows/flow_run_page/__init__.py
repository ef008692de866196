"""The page of a study's flow run in Prefect: its progress, its trials, and a summary.

`page` observes the study. A separate thread updates three artifacts through `publishing`: the
`trials_table`, the `summary` and the progress. Text of users and trials is shown as `plain_text`.
"""
