"""The page of a study's flow run in Prefect: its progress, its trials, and a summary.

`page` observes the study; a thread of its own keeps three artifacts up to date by `publishing`: the
`trials_table`, the `summary` and the progress. Text of users and trials is shown as `plain_text`.
"""
