"""Algorithms and spaces as data, each algorithm stated once and reused.

One file per step of the papers' pipelines: `construction` of features, `table_preparation`,
`rescaling`, `balancing`, `preprocessing`, and the models of `classification` and `regression`;
`admm` and `admm_models` have what is ADMM's alone, `ensemble_smbo` spaces of a single model.
`modern` has the modern spaces, with `boosted_trees` and `modern_models`; `gaps_and_categories`,
`combinations`, `scaled_targets` and `boosting` have what those are made of, and `portfolios` what a
search of them begins with.
`spaces` puts them together, `shared_spaces` has the hyperparameters that several algorithms share,
`estimators` and `construction` our own estimators.

An algorithm is one declaration: estimator, hyperparameters, effective values (`transforms`), memory
estimate (`memory`), flags. A step may get a new one anywhere among the others: running studies go
on with those they were started with. A change of an algorithm, or of the order, makes studies of
its spaces unusable. Estimators are named by path in keys and pickles: they stay where they are.
"""
