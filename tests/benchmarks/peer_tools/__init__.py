"""Other tools beside ours, on the same tables, test rows, seconds and core.

`tables` splits a table into files that all tools read, `task` is what a tool gets and answers,
`adapters` has a module for each tool, `one_run` runs one in a process of its own, `runs` starts
such processes and stores the answers, `plain_evaluation` cross-validates configurations of our
spaces without a cache for tools that search them, `portfolios` makes portfolios without a table,
and `report` ranks the tools. For patient events there are `event_sets`, `event_adapters` and
`event_report`.
"""
