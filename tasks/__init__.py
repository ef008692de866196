"""The one room that knows data and estimators.

`data` reads what the user names and splits it, `catalogue` holds algorithms and spaces, `objective`
says what a pipeline is judged by. A `problem` is what a study is about, `study_context` what a
worker must know of it. `fitting` does one step of one fold, a `node` with the cache, a `chain` all
steps of a `fold`, and `path_run` all folds, with `repairs` of data that a step cannot take;
`measuring` takes what else is bounded. `steps`, `evaluate` and `refit` are the Prefect tasks around
it, `ensembling` combines their models, and `worker` brings them to Dask, on one of the `threads`.
`user_code` and `user_space` load what users bring; what cannot be used is `bad_input`.
"""
