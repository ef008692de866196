"""Everything around the flows: command line, reports, estimator, server and packaging.

- `cli`: the command line `prefect-tune`
- `views`: output of the commands
- `report`: reports as HTML files
- `estimator`: the scikit-learn estimator
- `server`: the private Prefect server, shared by runs
- `serve`: a process that serves the deployments in `prefect.yaml`
- `package`: the names that `import prefect_tune` loads
- `docs`: the documentation, which is not part of the package
"""
