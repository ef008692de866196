"""Where trials run, and what Prefect's server is told of them.

`dask_trials` is what a search sees: trials under way. They run on a `worker_pool` of one of the
`clusters`: `local_workers`, forked on this machine, or workers that others started, of which the
`roster` knows who is there and has passed the checks of `external_workers`. Local ones are
`closed_nodes`, to which nobody else can connect, with a `scratch` folder and all they need
`preloaded` by a `fork_server`, and spared the user's `main_module`. A `local_nanny` restarts its
worker, `worker_starts` limit how long starts may fail, and `isolation` runs suspects alone.
`nanny_reports` say why a worker is gone, `worker_notices` carry warnings to the flow, and `jobs`
are tasks that are no trials. Towards Prefect, `reaping` ends runs whose
process died, and `server_pace` keeps the server from losing any.
"""
