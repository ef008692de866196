"""Runs, resumes, retries and compares studies. The package contains no mathematics.

- `tune`: the flows `tune` and `retry`
- `compare`: the flow `compare`
- `session`: one session of a study in a flow run
- `search`: the loop over the trials of a study
- `flow_run_page`: a study in Prefect
- `options`: the parameters of the flows
- `starting`: turns parameters into a study
- `running`: signals, event loops and Prefect around a running flow
- `study`: a study in the ledger
- `ending`: the final model
- `workers`: where trials run
- `series`: studies of one question over time, and the flow `promote`
- `reading`: a stored study, for people and programs
- `results`: the results of a study, for other programs
- `comparison`: studies of several methods
- `wording`: texts shared by terminal, log, report and Prefect
"""
