"""Where trials run, and which task runs Prefect's server sees.

- `dask_trials`: trials and other tasks, such as refits, on workers
- `pool`: the workers, and the tasks that run on them
- `clusters`: Dask in the flow's process, in worker processes, or the user's scheduler
- `worker_process`: a worker process of this machine
- `server_pace`: keeps Prefect's server from losing runs, and closes the runs of dead processes
"""
