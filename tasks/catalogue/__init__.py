"""Algorithms and spaces, declared as data and reused.

`spaces` lists all spaces by name, and finds the usable part of a space if a library is missing.
`notation` provides short forms for declaring hyperparameters and algorithms. `flash` declares
FLASH's steps and spaces, `admm` ADMM's spaces, and `modern` the modern spaces; `portfolios` lists
configurations to start a search with. All spaces share `construction`, which builds features from
events, and `preparation`: imputing, encoding, rescaling and balancing.

`estimators`, `gaps_and_categories`, `combinations`, `boosting`, `construction` and `event_windows`
define estimators that scikit-learn lacks.

Each algorithm is declared once, with its estimator, hyperparameters, effective values and flags.
New algorithms may be inserted anywhere in a step, because existing studies keep their initial
algorithms. If an algorithm or the order of algorithms changes, existing studies of the space can no
longer be resumed. Cache keys and pickles contain the import paths of estimators, so estimators must
not be moved.
"""
