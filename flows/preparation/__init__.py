"""From parameters to a study in the ledger: everything that can be wrong is found here, first.

`options` states the parameters, `settings` parses them, `study_input` reads the data, `plan`
resolves what was left out and enters the study, `resume` merges with one that is there.
"""
