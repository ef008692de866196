"""The methods of search, a folder each with a declaration that is light to import.

`random_search`, `tpe` and `smac` treat a pipeline as one configuration, and so does `jopt`, the
reference of ADMM; `flash` prunes paths first, `admm` alternates between paths and values. `halving`
and `hyperband` ask for less than a full evaluation and go on with the best; `bohb` is the latter
with a model. `fabolas` learns on subsets of the rows what to decide for all of them, and `ei`, `es`
and `mtbo` are what it is compared with, from its own parts; `bapi` learns on learning curves which
trainings are worth going on with. `esmbo` searches for the members of an ensemble, and `ers` draws
them at random.
"""
