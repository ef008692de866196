"""Where trials run, and what Prefect's server learns about them.

A search uses `dask_trials`. `jobs` are other tasks, such as refits. Both are tasks under way in a
`pool` of workers. The pool belongs to one of the `clusters`: Dask in the flow's process,
`worker_process`es of this machine, or `external_workers`, which have to pass checks. `server_pace`
prevents that Prefect's server loses runs, and closes those whose process has died.
"""
