"""Boosted trees that take gaps and categories of tables as they are, and matrices too.

Ranges for the histograms come from our own measurements; ranges for the other libraries span
AutoGluon's portfolios (package autogluon.tabular 1.6, configs/zeroshot).
"""

from dataclasses import replace

from ConfigSpace import Categorical, Float, Integer

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags
from prefect_tune.tasks.catalogue.shared_spaces import ranges

_BOOSTING = "prefect_tune.tasks.catalogue.boosting"
_IGNORED = ("impute", "encode", "rescale", "preprocess")
_FLAGS = Flags(accepts_sparse=False, weights="sample_weight", stochastic=True)
_FIXED_ROWS = 10_000.0
"""Fixed cost of a fit in rows, mainly for histograms; between 6,000 and 17,000 rows were measured
on 13 columns and three classes."""

HIST_GRADIENT_BOOSTING = Algorithm(
    id="hist_gradient_boosting",
    estimator="sklearn.ensemble.HistGradientBoostingClassifier",
    hyperparameters=ranges(
        Float("learning_rate", (0.01, 1.0), default=0.1, log=True),
        Integer("max_iter", (16, 512), default=100, log=True),
        Integer("max_leaf_nodes", (4, 128), default=31, log=True),
        Integer("min_samples_leaf", (1, 200), default=20, log=True),
        Float("l2_regularization", (1e-8, 10.0), default=1e-8, log=True),
        Float("max_features", (0.3, 1.0), default=1.0),
    ),
    fixed={"categorical_features": "from_dtype", "early_stopping": False},
    memory="binned_matrix",
    growth={"fixed": _FIXED_ROWS, "classes": 1.0, "max_iter": 1.0},
    threads="openmp",
    flags=Flags(
        accepts_sparse=False, weights="sample_weight", stochastic=True, few_categories=True
    ),
    ignores=_IGNORED,
    kind="boosted_trees",
)
LIGHTGBM = Algorithm(
    id="lightgbm",
    estimator=f"{_BOOSTING}.light_gbm.classifier",
    hyperparameters=ranges(
        Float("learning_rate", (0.005, 0.3), default=0.05, log=True),
        Integer("n_estimators", (32, 512), default=128, log=True),
        Integer("num_leaves", (8, 256), default=31, log=True),
        Float("colsample_bytree", (0.4, 1.0), default=0.9),
        Integer("min_child_samples", (2, 60), default=20, log=True),
        Categorical("extra_trees", [False, True], default=False),
    ),
    memory="binned_matrix",
    growth={"fixed": _FIXED_ROWS, "classes": 1.0, "n_estimators": 1.0},
    threads="openmp",
    flags=_FLAGS,
    ignores=_IGNORED,
    requires=("lightgbm",),
    kind="boosted_trees",
)
XGBOOST = Algorithm(
    id="xgboost",
    estimator=f"{_BOOSTING}.xg_boost.classifier",
    hyperparameters=ranges(
        Float("learning_rate", (0.005, 0.3), default=0.1, log=True),
        Integer("n_estimators", (32, 512), default=128, log=True),
        Integer("max_depth", (3, 10), default=6),
        Float("colsample_bytree", (0.5, 1.0), default=1.0),
        Float("min_child_weight", (0.1, 10.0), default=1.0, log=True),
    ),
    memory="binned_matrix",
    growth={"fixed": _FIXED_ROWS, "classes": 1.0, "n_estimators": 1.0, "max_depth": 1.0},
    flags=_FLAGS,
    ignores=_IGNORED,
    requires=("xgboost",),
    kind="boosted_trees",
)
CATBOOST = Algorithm(
    id="catboost",
    estimator=f"{_BOOSTING}.cat_boost.classifier",
    hyperparameters=ranges(
        Float("learning_rate", (0.01, 0.3), default=0.1, log=True),
        Integer("iterations", (32, 512), default=128, log=True),
        Integer("depth", (4, 8), default=6),
        Float("l2_leaf_reg", (1.0, 10.0), default=3.0, log=True),
    ),
    memory="binned_matrix",
    growth={"fixed": _FIXED_ROWS, "classes": 1.0, "iterations": 1.0, "depth": 1.0},
    threads="estimator__thread_count",
    flags=_FLAGS,
    ignores=_IGNORED,
    requires=("catboost",),
    kind="boosted_trees",
)


def _of_numbers(algorithm: Algorithm) -> Algorithm:
    """Return the same boosted trees for predicting numbers, without class weights."""
    estimator = algorithm.import_path
    if estimator.startswith("sklearn."):
        estimator = estimator.replace("Classifier", "Regressor")
    else:
        estimator = estimator.replace(".classifier", ".regressor")
    flags = replace(algorithm.flags, weights="none")
    return replace(algorithm, estimator=estimator, flags=flags)


BOOSTED_TREES = (HIST_GRADIENT_BOOSTING, LIGHTGBM, XGBOOST, CATBOOST)
BOOSTED_TREES_OF_NUMBERS = tuple(_of_numbers(algorithm) for algorithm in BOOSTED_TREES)
BOOSTED_TREES_OF_EVENTS = tuple(
    replace(a, flags=replace(a.flags, accepts_sparse=bool(a.requires))) for a in BOOSTED_TREES
)
"""Algorithms for matrices of events: the libraries accept sparse ones, scikit-learn does not.

The algorithms for tables never see a sparse matrix. Their flags stay unchanged for the sake of
studies that search the spaces of tables.
"""
