"""Other tools beside ours, on the same tables, test rows, seconds and core.

`tables` splits a table into files that all of them read, `task` says what a tool is asked for and
what it answers, `adapters` has a module for each tool, `one_run` runs one in a process of its own,
`runs` runs many, each on a core of its own, `rows` keeps what came out, `scoring` has the loss of
all of them, `plain_evaluation` cross-validates configurations of our spaces without a cache for
those that search them, `spaces` says which, and `report` ranks them. For patient events there are
`event_sets`, `event_adapters` and `event_report`.
"""
