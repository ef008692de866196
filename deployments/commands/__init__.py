"""The commands of `prefect-tune`, one module per group, importing heavy modules when they run.

`run` searches and retries, `compare` compares methods, and `serve` serves deployments;
`flow_run` runs flows and shows the progress. `study` shows, lists, reports and removes
studies, `series` lists series and sets their champions, `model` predicts and exports, `artifacts`
inspects the store, `catalogue` lists methods and spaces, and `cohort` writes a synthetic cohort.
`completing` provides shell completion. All share `options`, `output` and `errors`.
"""
