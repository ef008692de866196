"""A Dask worker's side of a study.

It runs tasks leanly (`dask_runner`, `task_run_events`) and proves its `readiness`. It keeps a
`trial_note` of where its trial is, in a `note_file` that no full disk stops, and the `limit_keeper`
in its nanny holds that trial, with its whole `process_tree`, to its `trial_limits`. A worker ends
with its nanny by `parent_death`, or by a `guard`; what the flow has left on a scheduler are its
`scheduler_marks`. Its `printed_output` goes over its `standard_streams` to an `output_keeper`,
which keeps the end in a `tail_file`; `start_log` has what a start printed. `oom_kills` are counted,
and `sent_notices` reach the flow. Whatever loads much does it by `quick_imports`.
"""
