"""Data and estimators: everything needed to evaluate a pipeline.

`data` reads the user's input into a data set and splits it. `catalogue` has algorithms and spaces.
A `user_space` comes from `user_code`, the user's file and the code behind it. `objective` judges a
pipeline. `bad_input` is the error for unusable input. `problem` is everything about a study that a
trial needs, including its plugins.

A `trial` runs a path of steps, served by the cache or made by `fitting`. `final` has the models of
a study. `prefect_tasks` run all this in a `sandbox` of a Dask worker, with a number of `threads`
for each call.
"""
