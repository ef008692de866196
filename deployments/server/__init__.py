"""The Prefect server that the runs of one home share.

- `embedded`: Finding or starting the server, and pages of its UI.
- `process`: The process of the server.
- `guarded`: The program of that process: Prefect's application behind a secret.
- `empty_database`: The database of a new home.
- `prefect_settings`: Settings that point Prefect to the server.
"""
