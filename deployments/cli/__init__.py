"""The commands of `prefect-tune`. Heavy modules are imported only when a command runs.

- `command`: the command line, with all commands
- `run`: searches, retries, and serves deployments
- `compare`: compares methods
- `study`: shows, lists, reports and removes studies
- `series`: lists series and sets their champions
- `model`: predicts and exports
- `artifacts`: inspects the store
- `catalogue`: lists methods and spaces
- `cohort`: writes a synthetic cohort
- `flow_run`: runs flows for commands, and shows progress
- `completing`: shell completion
- `options`: options that commands share
- `output`: printing of results, as text or JSON
- `errors`: messages and exit codes for errors
"""
