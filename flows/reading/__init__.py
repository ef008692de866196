"""Reading a study from its ledger, for people and programs; cheap to import.

- `trial_view`: one trial, read from its document.
- `opened_study`: a study opened to read: row, plan, events, and trials with explanations.
- `study_view`: a study, read in one pass.
- `study_lines`: the lines that describe a study.
- `lookup`: a series, artifacts of studies, and the removal of a study.
- `commands`: commands that start, resume and inspect a study.

Readers never rank: the process that runs a study records the incumbent.
"""
