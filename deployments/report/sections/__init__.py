"""The sections of a study's report, a file each, in the order of the page.

`progress`, `model`, `paths`, `importance`, `step_times`, `failures`, `trade_offs`, `fidelities`,
`decisions` and `reproduction`; each takes the report and yields its section where it has something
to say. `answers` are those of the first screen.
"""
