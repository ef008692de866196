"""From parameters to a study in the ledger: errors in the input are found here, before any work.

`request` holds the parsed options of `flows.options` with the metric and the space they name.
`prepare` either resolves a new study (`resolve`, from its `study_input`, with the configurations to
`start` from) or merges the request with an existing study (`resume`); both check `constraints`.
`handover` passes the result of a flow's caller to the flow.
"""
