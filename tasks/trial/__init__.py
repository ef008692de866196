"""One trial: a path of steps, run fold by fold.

`evaluate` is the Prefect task of a trial, with one task per step, and checks that a worker can run
trials. A `path_run` has a chain of `node`s for each fold, one per step, which the cache serves or
the trial makes. Features of patient events come from `shared_blocks`, which all trials on a data
set share. A model that trains in epochs trains in all folds together, from its checkpoints.
"""
