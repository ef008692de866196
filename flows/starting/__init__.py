"""Turns parameters into a study in the ledger, and reports errors in the input before any work.

- `prepare`: the whole preparation, and the study it results in
- `request`: parsed options, with the metric and the space they name
- `study_input`: data of a new study, and a space that fits the data
- `start`: initial configurations
- `resolve`: the plan of a new study
- `resume`: the plan of an existing study, merged with a request
- `handover`: passes a study that a flow's caller has prepared to the flow
- `output_files`: outputs that replace no input
"""
