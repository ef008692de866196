"""Algorithms and spaces as data, each algorithm stated once and reused.

One file per step of the papers' pipelines: `construction` of features, `preparation` (of tables,
scales and classes), `preprocessing`, and the models of `classification` and `regression`; `admm`
has ADMM's own models and spaces. `modern` has the modern spaces and their models, with
`boosted_trees`; `gaps_and_categories`, `combinations` and `boosting` have their parts, `portfolios`
the first configurations of a search in them, and `libraries` tells what of a space can be used
where a library is missing. `paper_spaces` puts the others together, and `spaces` knows all by name;
`shared_spaces` has the hyperparameters that several algorithms share, `estimators`, `construction`
and `event_windows` our own estimators; `event_blocks` makes the columns of the last.

An algorithm is one declaration: estimator, hyperparameters, effective values, memory estimate,
flags. A step may get a new one anywhere among the others: running studies keep those they were
started with. A change of an algorithm, or of the order, makes studies of its spaces unusable.
Estimators are named by path in keys and pickles: they stay where they are.
"""
