"""How and where prefect-tune runs.

- `cli`: the command line `prefect-tune`
- `views`: output of the commands
- `report`: reports as HTML files
- `estimator`: the search as a scikit-learn estimator
- `server`: the private Prefect server, shared by runs
- `serve`: serving of the deployments in `prefect.yaml`
- `package`: the names that `import prefect_tune` loads
- `docs`: the documentation, which is not part of the package
"""
