"""The commands of `prefect-tune`, a module per group; they import what they need when they run.

`run` searches and retries, `compare` compares methods, `serve` serves deployments; `flow_run` calls
their flows and follows them. `study` shows, lists, reports and removes studies, `model` predicts
and exports, `artifacts` looks into the store. `catalogue` lists methods and spaces, `cohort` writes
a synthetic one. `completing` has the values that shells complete. All share `options`, `output` and
`errors`.
"""
