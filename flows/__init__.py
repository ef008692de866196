"""Searches within a budget, resumed, retried and compared; no mathematics.

The flows are `tuning`, `retrying` and `comparing`. `session` takes a study through a flow run:
`missing_quantities` are measured, `search` is the loop over its trials, the best of which get a
`second_look`, `final_model` is made of its choice by `refitting`, and `lost_predictions` are made
again for that; `results` are for those who go on with them. `preparation` turns parameters into a
study, `study` is a study in the ledger, `workers` run its trials, and `comparison` sets studies of
several methods side by side; `reporting` gathers what is to be said of either. `progress` is what a
study under way tells its observers, of parts for `following` it, and `flow_run_page` is what
Prefect shows of it; `interrupts` end it, and where an `event_loop` runs it has a thread of its own.
`units`, `quartiles`, `visible` texts, `markdown`, `home` and the `store_options` of commands serve
all.
"""
