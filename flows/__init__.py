"""Loops, budgets, resuming, parallel asking; no mathematics.

`options` states what a study can be told, `settings` parses it, `preparing` checks it against the
data and enters the study in the ledger. `study` is an open study, `search` the loop over trials
that `dask_trials` runs on `local_workers` or another cluster, `server_pace` keeps the Prefect
server from drowning, `running` is one session. The flows themselves are `tuning` and `retrying`;
`progress` and `summary` say what comes of them, `predicting` and `removing` are for afterwards.
"""
