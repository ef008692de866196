"""The search methods, each with a declaration that is cheap to import.

Most methods are declared in `declarations`. `flash`, `admm`, `fabolas` and `bapi` are folders.
`tpe` and `smac` treat a pipeline as one configuration, as do the `references`, random search and
JOPT. `flash` prunes paths first, and `admm` alternates between paths and values. `halving` (with
Hyperband) evaluates many configurations at low fidelities and the best at higher ones, rung by
rung; `bohb` adds a model. `fabolas` learns from subsets of the rows which configuration is best on
all rows. `bapi` learns from learning curves which trainings to resume. `esmbo` searches for the
members of an ensemble.
"""
