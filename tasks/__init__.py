"""Data and estimators: all that is needed to evaluate a pipeline.

`data` reads the user's input into a data set and splits the data set. `catalogue` has algorithms
and spaces. A `user_space` is defined in `user_code`: the user's file and the modules it imports.
`objective` has metrics and constraints. `bad_input` is the error for unusable input. `problem` has
all properties of a study that a trial needs, including plugins.

A `trial` runs the steps of a path; results come from the cache or from `fitting`. `final` makes the
models of a study. `prefect_tasks` run trials and final models in a `sandbox` of a Dask worker;
`threads` limits the threads of each call.
"""
