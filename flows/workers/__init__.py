"""Where trials run, and what Prefect's server learns about them.

A search uses `dask_trials`, which also reruns trials alone that may have killed workers, and relays
warnings of workers. `jobs` are other tasks, such as refits. Both are tasks `under_way` on a
`worker_pool`. The pool belongs to one of the `clusters`: `local_workers`, forked on this machine,
or external workers, which the `roster` tracks once they have passed the checks of
`external_workers`. Local workers get a `scratch` folder and find everything `preloaded` by a
`fork_server`. A `local_nanny` restarts its worker, and `worker_starts` limits how long starts may
fail. `nanny_reports` explain why a worker is gone. In Prefect, `task_run_states` closes runs whose
process died, and `server_pace` prevents lost runs.
"""
