"""Data and estimators: all that is needed to evaluate a pipeline.

`data` reads the user's input into a data set and splits the data set. `catalogue` declares
algorithms and spaces. `user_space` loads a user's own space from `user_code`, which consists of the
user's file and the modules it imports. `objective` defines metrics and constraints. `bad_input`
defines the error for unusable input. `problem` describes everything about a study that a trial
needs, including plugins.

A `trial` runs the steps of a path; results come from the cache or from `fitting`. `final` builds
the final models of a study. `prefect_tasks` runs trials and final models in a `sandbox` of a Dask
worker; `threads` limits the threads of each call.
"""
