"""The Prefect server that one home shares among its runs.

`embedded` finds or starts it, `process` is its process, `guarded` what that process runs: Prefect's
application behind a secret. `empty_database` is what a new home begins with. `locks` hold the
secret and count users, `prefect_settings` point Prefect at the server, and `task_run_page` gives
the address of a task run in its pages.
"""
