"""The Prefect server that one home shares among its runs.

`embedded` finds or starts it, `process` is its process with its database, and `guarded` what that
process runs: Prefect's application behind a secret. `locks` hold the secret and count users,
`prefect_settings` point Prefect at the server, and `task_run_page` gives the address of a task run
in its pages.
"""
