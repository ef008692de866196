"""One trial: a path of steps, run fold by fold.

`evaluate` evaluates a trial's query, and checks that a worker can run trials. A `path_run` has a
chain of `node`s for each fold, one node per step; a node's result comes from the cache or is
computed. Features of patient events are built from `shared_blocks`, which all trials on a data set
share. A model that trains in epochs is trained in all folds side by side and resumes from
checkpoints.
"""
