"""Searches within a budget, resumed, retried and compared; no mathematics.

The flows are in `tuning` (tune and retry) and `comparing`. `session` takes a study through a flow
run: `search` is the loop over its trials, `reevaluation` runs trials again (finalists on a second
split, lost predictions, new constraints), and `final_model` is made of the study's choice by
`refitting`. `results` are for those who use a study afterwards.

`preparation` turns parameters into a study, `study` is a study in the ledger, `workers` run its
trials, and `comparison` sets studies of several methods side by side. `progress` is what observers
of a running study see, and `flow_run_page` is its page in Prefect. `options` declares the
parameters of the flows; `interrupts` end a study, and an `event_loop` that already runs gets a
thread of its own. `text`, `markdown` and `store_location` serve all.
"""
