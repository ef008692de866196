"""How and where prefect-tune runs: command line, estimator, report, embedded server, deployments.

`command` is `prefect-tune`. Its `commands` print through `views` and write a `report`. `estimator`
is the scikit-learn interface, `server` shares an embedded Prefect server among runs, `serve` serves
the deployments of `prefect.yaml`, and `package` is what `import prefect_tune` loads. `docs` has the
documentation and is not part of the package.
"""
