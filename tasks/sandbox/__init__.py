"""Sandboxes: processes of a worker in which trials run.

A `sandbox` is a `child` process that runs calls and sends reports; a worker thread waits for each
call and enforces limits on the whole `process_tree`. A `zygote` forks sandboxes. The output of a
call goes to an `output` file. If a call damages its process, the sandbox is replaced. The
`dask_runner` runs Prefect tasks on Dask workers with little overhead.
"""
