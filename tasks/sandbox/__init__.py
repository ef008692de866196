"""Sandboxes: processes of a worker in which trials run.

A `sandbox` is a `child` process that runs calls and reports on each; the worker's thread waits for
the call and enforces its limits on the whole `process_tree`. A `zygote` forks sandboxes. What a
call prints goes to an `output` file. A call that changed its process leaves one that is replaced.
The `dask_runner` runs Prefect tasks on Dask workers with little overhead.
"""
