"""Reading of studies from the ledger, for people and programs. All modules are cheap to import.

- `trial_view`: one trial, read from its document.
- `opened_study`: plan, events and trials of a study opened for reading.
- `study_view`: a study, read in one pass.
- `study_lines`: the lines that describe a study, and the next commands.
- `lookup`: lookup of series and of cached step results, and removal of studies.
- `commands`: commands that start or resume a study.

Readers never rank trials, because the process that runs a study records the incumbent.
"""
