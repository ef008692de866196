"""A Dask worker's side of a study.

A worker runs tasks with little overhead (`dask_runner`), and checks what a study needs
(`readiness`). It keeps a `trial_note` of its trial's progress, even on a full disk. The
`limit_keeper` in its nanny enforces the limits on the trial's whole `process_tree`. `orphans` ends
workers whose nanny has ended. The worker's `printed_output` goes over its `standard_streams` to an
`output_keeper`, which keeps the last part. `start_log` logs a start and makes imports quick.
"""
