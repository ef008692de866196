"""The methods of search, each with a declaration that is light to import.

Small methods are declared in `declarations`; `flash`, `admm`, `fabolas` and `bapi` are folders with
declarations of their own. `tpe` and `smac` treat a pipeline as one configuration, and so do the
`references`, random search and JOPT; `flash` prunes paths first, and `admm` alternates between
paths and values. `halving` (with Hyperband) evaluates many configurations at small fidelities and
the best at larger ones, on `rungs`; `bohb` adds a model. `fabolas` learns on subsets of the rows
what to decide for all of them; `bapi` learns from learning curves which trainings to resume.
`esmbo` searches for the members of an ensemble.
"""
