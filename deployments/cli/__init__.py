"""The commands of `prefect-tune`, which import heavy modules when they run.

- `command`: the command line, with all commands
- `run`: searches, retries, and serves deployments
- `compare`: compares methods
- `study`: shows, lists, reports and removes studies
- `series`: lists series and sets their champions
- `model`: predicts and exports
- `artifacts`: inspects the store
- `catalogue`: lists methods and spaces
- `cohort`: writes a synthetic cohort
- `flow_run`: runs flows and shows their progress
- `completing`: shell completion
- `options`: options that commands share
- `output`: results, as text or JSON
- `errors`: errors as messages and exit codes
"""
