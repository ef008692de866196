"""Runs of prefect-tune and other tools on the same tables, test rows, seconds and core.

`tables` splits a table into files that all tools read, `task` is the input and output of a tool,
`adapters` has a module for each tool, `one_run` runs a tool in a separate process, `runs` starts
such processes and stores the answers, `plain_evaluation` cross-validates configurations of our
spaces without a cache for tools that search them, `portfolios` makes portfolios without a table,
and `report` ranks the tools. For patient events, `event_sets`, `event_adapters` and `event_report`
do the same.
"""
