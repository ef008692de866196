"""The figures of a study's report, each collected and drawn in one module.

`progress`, `paths`, `importance`, `step_times`, `failures`, `trade_offs`, `fidelities` and `model`
have a collector that takes the trials one by one. `quality` judges the final model, and `codes`
shows the medical codes it uses. `series` shows the runs of its series. Each module yields a section
if it has data.
"""
