"""Loops, budgets, resuming, parallel asking; no mathematics.

`options` states what a study can be told, `settings` parses it, `study_input` reads the data and
finds what fits, `preparing` enters the study in the ledger. `study` is an open study, `search` the
loop over trials that `dask_trials` runs on one of the `clusters`, `server_pace` keeps the Prefect
server from drowning, `reaping` ends what died, `running` is one session. The flows themselves are
`tuning`, `retrying` and `comparing`; `progress`, `summary`, `curves` and `standings` say what comes
of them, `predicting` and `removing` are for afterwards.
"""
