"""TPE (Bergstra et al. 2011): its `declaration`, and `tpe`, the method.

`parzen_search` is the search, which FLASH may use too: `dimensions` are a space as Optuna's
distributions, and `optuna_study` shows its sampler the trials.
"""
