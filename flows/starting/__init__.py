"""Turns parameters into a study in the ledger, and reports errors in the input before any work.

- `prepare`: the whole preparation, the study it results in, and its handover to a flow
- `study_input`: parsed options with what they name, and the data and space of a new study
- `resolve`: the plan of a new study, with its initial configurations
- `resume`: the plan of an existing study, merged with a request
- `output_files`: outputs that replace no input
"""
