"""The Prefect server that the runs of one home share.

`embedded` finds or starts the server, `process` is its process, and `guarded` is the program of
that process: Prefect's application behind a secret. `empty_database` prepares the database of a new
home. `locks` hold the secret and count users, `prefect_settings` point Prefect to the server, and
`task_run_page` gives the address of a task run.
"""
