"""The one room that knows data and estimators.

`data` reads what the user names into a data set and splits it; `catalogue` holds algorithms and
spaces, and a `user_space` is made by `user_code`; `objective` says how a pipeline is judged; input
that cannot be used is `bad_input`. `problem` and `study_context` say what a study is about.

A trial is a `path_run`: for each fold a `chain` of `node`s, one per step, which the cache serves
or `fitting` makes, with `repairs` of data that a step cannot take. A model that trains in epochs is
an `iterative_node`: `joint_training` leads those of all folds from their `checkpoints`. `steps`,
`evaluate` and `refit` are the Prefect tasks around it, of trials and of the `final_model`;
`measuring` adds the quantities that constraints bound, and `ensembling` combines models. `worker`
brings all this to Dask, one of the `threads` for each trial.

What came out leaves by `exporting`, a model that others read, and by `trial_code`, the pipeline of
a trial and the code that builds it.
"""
