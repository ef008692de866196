"""Algorithms and spaces as data, each algorithm declared once and reused.

Each step of the papers' pipelines has its own file: `construction` of features, `preparation` (of
tables, scales and classes), `preprocessing`, and the models of `classification` and `regression`.
`admm` has ADMM's own models and spaces. `modern` has the modern spaces and models, with
`boosted_trees`; `gaps_and_categories`, `combinations` and `boosting` have their parts, and
`portfolios` the first configurations of a search. `libraries` finds the usable part of a space if a
library is missing. `paper_spaces` assembles the other spaces, and `spaces` lists all by name.
`shared_spaces` has hyperparameters that several algorithms share. `estimators`, `construction` and
`event_windows` have our own estimators; `event_blocks` makes the columns of `event_windows`.

An algorithm is one declaration: estimator, hyperparameters, effective values, memory estimate,
flags. New algorithms may be inserted anywhere in a step, because running studies keep the
algorithms they started with. Changing an algorithm, or the order of algorithms, makes studies of
the spaces unusable. Keys and pickles name estimators by path, so estimators must not move.
"""
