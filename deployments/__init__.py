"""How and where it runs: the command line, the embedded server, serving deployments.

`command` is `prefect-tune`, whose `commands` print through `views` and write a `report`;
`estimator` is the same for those who know scikit-learn. `server` shares the embedded Prefect server
among runs, its `server_users`; `server_process` starts and stops the process, which is a
`guarded_server`, `server_secret` keeps others out, `server_database` lays its tables.
`prefect_settings` are those that the user has not chosen, a `task_run_page` is where Prefect shows
a trial, `serve` serves the deployments of `prefect.yaml`, and `package` is what `import
prefect_tune` loads. `docs` has the documentation, and is no part of the package.
"""
