"""Workers that run trials, and the task runs that are reported to Prefect's server.

- `dask_trials`: trials and other tasks, such as refits, on workers
- `pool`: the workers, and the tasks that run on them
- `clusters`: Dask workers in the flow's process, in worker processes, or on the user's scheduler
- `worker_process`: worker processes on this machine
- `server_pace`: keeps Prefect's server from losing task runs, and closes runs of dead processes
"""
