"""The commands of `prefect-tune`, a file a group; they import what they need when they run.

`run` searches and retries, `compare` compares methods, `serve` serves deployments; `flow_run` calls
their flows and follows them. `study`, `model` and `artifacts` look at what came out and use it,
`report` writes it down, `catalogue` lists what there is, `cohort` writes a synthetic one;
`completion` prints what makes a shell complete them, with values by `completing`. All share
`options`, `output`, the `store` that they look into, reports as a `written_page`, `usage` and
`errors`; `method_options` says what options a method has.
"""
