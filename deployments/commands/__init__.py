"""The commands of `prefect-tune`, one module per group, importing heavy modules when they run.

`run` searches and retries, `compare` compares methods, `serve` serves deployments, and
`automations` deploys automations; `flow_run` runs flows and shows the progress. `study` shows,
lists, reports and removes studies, `series` lists series, `champion` sets the champion of one,
`model` predicts and exports, `artifacts` inspects the store, `catalogue` lists methods and spaces,
and `cohort` writes a synthetic cohort. `completing` provides shell completion. All share `options`,
`output` and `errors`.
"""
