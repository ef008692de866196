"""Sandboxes: processes of a worker in which trials run.

A `sandbox` is a `child` process that runs calls and `reports` on each; the worker's thread waits
for the call and enforces its limits on the whole `process_tree`. A `zygote` forks sandboxes. What a
call prints goes to an `output` file through its `standard_streams`; a call that changed its
`surroundings` leaves a process that is replaced. `readiness` is what a trial needs from a process.
Temporary files are in a `scratch` folder. The `dask_runner` runs Prefect tasks on Dask workers with
little overhead.
"""
