"""The one room that knows data and estimators.

`data` reads what the user names into a data set and splits it; `catalogue` holds algorithms and
spaces. A `user_space` is made by `user_code`, with the `code_behind` the user's file. `objective`
says how a pipeline is judged; input that cannot be used is `bad_input`. `problem` is everything
about a study that a trial needs, the `plugins` included.

A `trial` runs a path of steps, which the cache serves or `fitting` makes, with `repairs` of data
that a step cannot take. `final_model` has the Prefect tasks that refit a choice on all training
rows, and `ensembling` combines models. `worker` brings all this to Dask, with one of the `threads`
for each trial.

Results leave by `exporting`, as a model that others read, and by `trial_code`, the pipeline of a
trial and the code that builds it.
"""
