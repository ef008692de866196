"""Where trials run, and what Prefect's server is told about them.

A search sees `dask_trials`, which also reruns suspects alone and relays warnings of workers. `jobs`
are other tasks, such as refits. Both are tasks `under_way` on a `worker_pool`. The pool has workers
of one of the `clusters`: `local_workers`, forked on this machine, or workers that others started,
which the `roster` keeps track of once they have passed the checks of `external_workers`. Local
workers get a `scratch` folder and find everything `preloaded` by a `fork_server`. A `local_nanny`
restarts its worker, and `worker_starts` limit how long starts may fail. `nanny_reports` give the
reason if a worker is gone. Towards Prefect, `task_run_states` ends runs whose process died, and
`server_pace` keeps the server from losing any.
"""
