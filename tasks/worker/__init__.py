"""A Dask worker's side of a study.

It runs tasks leanly (`dask_runner`, `task_run_events`) and proves its `readiness`. It keeps a
`trial_note` of where its trial is, and the `limit_keeper` in its nanny holds that trial to its
`trial_limits`.
"""
