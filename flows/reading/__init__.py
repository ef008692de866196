"""Reading a study from its ledger, for people and programs; cheap to import.

`lookup` finds studies and trials, `trial_view` reads one trial, `study_view` a whole study in one
pass and `series_view` a series. `study_lines` has the lines that describe a study, `trial_detail`
explains a trial, and `commands` has the commands that start, resume and inspect a study. Readers
never rank: the process that runs a study records the incumbent.
"""
