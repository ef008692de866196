"""A Dask worker's side of a study.

It runs tasks leanly (`dask_runner`) and proves its `readiness`. It keeps a `trial_note` of where
its trial is, which no full disk stops, and the `limit_keeper` in its nanny holds that trial, with
its whole `process_tree`, to its limits. A worker ends with its nanny by the rules of `orphans`. Its
`printed_output` goes over its `standard_streams` to an `output_keeper`, which keeps the end;
`start_log` has the output of a start, and quick imports for whatever loads much.
"""
