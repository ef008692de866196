"""How and where it runs: the command line, the embedded server, serving deployments.

`command` is `prefect-tune`, whose `commands` print through `views` and write a `report`;
`estimator` is the same for those who know scikit-learn. `server` shares the embedded Prefect server
among runs. `serve` serves the deployments of `prefect.yaml`, and `package` is what `import
prefect_tune` loads. `docs` has the documentation, and is no part of the package.
"""
