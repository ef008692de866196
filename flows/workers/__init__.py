"""Where trials run, and what Prefect's server learns about them.

- `dask_trials`: trials and other tasks, such as refits, on workers
- `pool`: the workers, and the tasks that run on them
- `clusters`: Dask in the flow's process, in processes of this machine, or of the user
- `worker_process`: a worker process of this machine
- `server_pace`: keeps Prefect's server from losing runs, and closes the runs of dead processes
"""
