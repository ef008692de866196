"""Runs searches within a budget, and resumes, retries and compares them; has no mathematics.

The flows are in `tuning` (tune and retry), `comparing` and `series.champion` (promote). `session`
runs a study in a flow run: `search` is the loop over its trials, `reevaluation` reruns trials
(finalists on a second split, and trials that lack predictions or a constrained quantity), and
`final_model` fits the chosen trials by `refitting`. `results` gives access to a finished study.

`preparation` turns parameters into a study, `study` is a study in the ledger, `series` are studies
of one question over time, `reading` shows a stored study to people and programs, `workers` run its
trials, and `comparison` compares studies of several methods. Observers of a running
study receive its `progress`, and `flow_run_page` is its page in Prefect. `options` declares the
parameters of the flows, `interrupts` and `run_requests` end or pause a study, `prefect_events` are
sent for automations, and `event_loop` lets flows run in an event loop. `output_files` keeps outputs
from replacing inputs. All use `text`, `markdown` and `store_location`.
"""
