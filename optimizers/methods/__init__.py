"""The search methods, each with a declaration that is cheap to import.

The methods are declared in `declarations`. `flash`, `admm`, `fabolas` and `bapi` are folders.
`tpe`, `smac` and the `references` (random search and JOPT) treat a pipeline as one configuration;
the stepwise reference does not.
`flash` prunes paths first, and `admm` alternates between paths and hyperparameter values. `halving`
(with Hyperband) evaluates many configurations at low fidelity and promotes the best to higher
fidelities, rung by rung, and `bohb` adds a model. `fabolas` uses subsets of the rows to predict
which configuration is best on all rows. `bapi` uses learning curves to decide which training runs
to resume. `esmbo` searches for the members of an ensemble.
"""
