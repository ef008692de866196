"""The private server: a Prefect server that all runs with the same home folder share.

- `embedded`: finds or starts the server; addresses of pages in the UI.
- `process`: the process of the server.
- `guarded`: the program of the server process, which is Prefect's application behind a secret.
- `empty_database`: the initial database of a new home folder.
- `prefect_settings`: settings of Prefect for clients and the server.
"""
