"""From parameters to a study in the ledger: everything that can be wrong is found here, first.

`options` states the parameters, `form` is how Prefect asks for them, and `settings` parses them
(`assignments`, `store_address`).
`prepare` then either has a new study resolved (`resolve`, from its `study_input`, after a
`method_check`, with the configurations to `start` from) or merges with the one in the ledger
(`resume`); `constraints` are checked for both. `notes` are what the user should know of it,
`handover` spares a flow the work that its caller has done, and `frames` are taken out of the
parameters so.
"""
