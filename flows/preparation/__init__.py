"""Turns parameters into a study in the ledger, and reports errors in the input before any work.

`request` holds the parsed options of `flows.options` with the metric and the space they name. For a
new study, `prepare` calls `resolve`, which reads the `study_input` and the configurations to
`start` from. For an existing study, it calls `resume`, which merges the request. Both check
`constraints`. `in_series` decides what a run of a series does with its last study. `handover`
passes a study that a flow's caller has prepared to the flow.
"""
