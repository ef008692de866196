"""A Dask worker's side of a study.

A worker runs tasks leanly (`dask_runner`) and proves its `readiness`. It keeps a `trial_note` of
its trial's progress, even on a full disk. The `limit_keeper` in its nanny enforces the limits on
the trial's whole `process_tree`. `orphans` ends a worker with its nanny. Its `printed_output` goes
over its `standard_streams` to an `output_keeper`, which keeps the end. `start_log` has the output
of a start, and quick imports.
"""
