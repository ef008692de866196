"""How and where it runs: the command line, the embedded server, serving deployments.

`command` is `prefect-tune`, whose `commands` print through `views`. `server` shares the embedded
Prefect server of a home, its process (`server_process`) and its database (`server_database`);
`prefect_settings` are those that the user has not chosen, and `serve` serves the deployments of
`prefect.yaml`. `package` is what `import prefect_tune` loads.
"""
