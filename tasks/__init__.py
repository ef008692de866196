"""The one room that knows data and estimators.

`source` reads what the user names into a `dataset`: a `table`, `events`, or a synthetic `cohort`.
`split` and `metric` say how it is judged. `catalogue` holds algorithms and spaces. `fitting` does
one step of one fold, a `node` with the cache, a `chain` all steps of a `fold`, and `path_run` all
folds; `steps`, `evaluate` and `refit` are the Prefect tasks around it. `dask_runner` brings
them to workers, and `readiness` checks those.
"""
