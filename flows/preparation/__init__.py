"""From parameters to a study in the ledger: every error in the input is found here, first.

`request` holds the parsed options of `flows.options` and finds the metric and the space they name.
`prepare` either has a new study resolved (`resolve`, from its `study_input`, with the
configurations to `start` from) or merges with the study in the ledger (`resume`); `constraints` are
checked for both. `handover` passes what a flow's caller has prepared on to the flow.
"""
