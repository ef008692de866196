"""Algorithms and spaces as data, each algorithm declared once and reused.

`spaces` lists all spaces by name, and finds the usable part of a space if a library is missing.
`notation` has short forms for declaring hyperparameters and algorithms. `flash` has FLASH's steps
and spaces, `admm` ADMM's spaces, and `modern` the modern spaces; `portfolios` has configurations to
start a search with. All spaces share `construction`, which makes features of events, and
`preparation`: imputing, encoding, rescaling and balancing.

`estimators`, `gaps_and_categories`, `combinations`, `boosting`, `construction` and `event_windows`
define estimators that scikit-learn lacks.

An algorithm is declared once: estimator, hyperparameters, effective values, flags. New algorithms
may be inserted anywhere in a step, because existing studies keep the algorithms they started with.
If an algorithm or the order of algorithms changes, studies with this space can no longer be used.
Cache keys and pickles contain the import paths of estimators, so estimators must not be moved.
"""
