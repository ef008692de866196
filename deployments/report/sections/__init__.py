"""The sections of a study's report, a module each, in the order of the page.

`answers` fill the first screen. `progress`, `model`, `quality`, `codes`, `paths`, `importance`,
`step_times`, `failures`, `trade_offs` and `fidelities` each yield a section if the report has
something for it.
"""
