"""The figures of a study's report, each gathered and drawn in one module.

`progress`, `paths`, `importance`, `step_times`, `failures`, `trade_offs`, `fidelities` and `model`
have a collector, which takes the trials one by one. `quality` judges the final model and `codes`
shows what it uses. Each yields a section if the report has something for it.
"""
