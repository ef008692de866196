"""The private server: a Prefect server that all runs of one home share.

- `embedded`: finds or starts the server; addresses of pages in the UI.
- `process`: the process of the server.
- `guarded`: the program of this process: Prefect's application behind a secret.
- `empty_database`: the database of a new home.
- `prefect_settings`: settings of Prefect for clients and the server.
"""
