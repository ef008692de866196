"""The modern spaces, in which each model gets only the preparation that can help it.

Boosted trees read missing values and categories of a table directly. For all other models, missing
values are imputed and categories encoded; except for trees, columns are also rescaled. The ranges
for scikit-learn's histogram boosting come from our own measurements; the ranges for the other
boosting libraries cover AutoGluon's portfolios (package autogluon.tabular 1.6, configs/zeroshot),
and most of FLAML's ranges of regularization (package flaml, automl/model.py).

`portfolios` lists configurations to start a search with. The configurations did well on other data
and were chosen greedily, as in auto-sklearn 2 (Feurer et al. 2022, section 4), independently of the
user's table. `tests/benchmarks/run flows/portfolio` builds the portfolios and measures their
benefit on other data.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ConfigSpace import Float

from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.optimizers.space.algorithm import Algorithm, Flags, Step
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.objective import MANY_ROWS, Objective
from prefect_tune.tasks.catalogue.construction import CONSTRUCT_FEATURES, DENSIFY
from prefect_tune.tasks.catalogue.event_windows import AGGREGATIONS, LEVELS, SCALINGS, WINDOWS
from prefect_tune.tasks.catalogue.flash import LOGISTIC_REGRESSION, PREPROCESS, percentile_of
from prefect_tune.tasks.catalogue.notation import (
    OWN,
    SEEDED,
    Group,
    boosted_trees,
    choice,
    criterion,
    declare,
    linear,
    log_real,
    log_whole,
    nystroem,
    only_if,
    real,
    space_of,
    step,
    svc,
    trees,
    twin_of,
    whole,
)
from prefect_tune.tasks.catalogue.preparation import BALANCE, MINMAX, NONE, QUANTILES, STANDARDIZE

_CATALOGUE = "prefect_tune.tasks.catalogue"
_BOOSTING = f"{_CATALOGUE}.boosting"
_PREPARATION = f"{_CATALOGUE}.gaps_and_categories"
_FIXED_ROWS = 10_000.0
"""Fixed cost, in rows, of fitting boosted trees, mainly for histograms; measurements on 13 columns
and three classes gave 6,000 to 17,000 rows."""


def _boosting(
    estimator: str,
    *groups: Group,
    grows_with: Sequence[str],
    leaves: Sequence[str] = (),
    **more: Any,
) -> Algorithm:
    """Declare boosted trees whose run time `grows_with` the rounds and other hyperparameters."""
    flags = Flags(
        accepts_sparse=False,
        weights="sample_weight",
        stochastic=True,
        few_categories=estimator.startswith("sklearn"),
    )
    return boosted_trees(
        estimator,
        *groups,
        growth={"fixed": _FIXED_ROWS, "classes": 1.0, **dict.fromkeys(grows_with, 1.0)},
        rounds=grows_with[0],
        transforms={grows_with[0]: "rounds_of_n", **dict.fromkeys(leaves, "leaves_of_n")},
        flags=flags,
        ignores=("impute", "encode", "rescale", "preprocess"),
        **more,
    )


_HISTOGRAMS = _boosting(
    "sklearn.ensemble.HistGradientBoostingClassifier",
    log_real(learning_rate=(0.01, 1.0, 0.1), l2_regularization=(0.001, 100.0, 0.001)),
    log_whole(max_iter=(16, 512, 100), max_leaf_nodes=(4, 256, 31), min_samples_leaf=(1, 256, 20)),
    real(max_features=(0.3, 1.0, 1.0)),
    grows_with=["max_iter"],
    leaves=["max_leaf_nodes"],
    fixed={"categorical_features": "from_dtype", "early_stopping": False},
    threads="openmp",
)
_LIGHTGBM = _boosting(
    f"{_BOOSTING}.light_gbm.classifier",
    log_real(learning_rate=(0.005, 0.5, 0.05), reg_lambda=(0.001, 100.0, 0.001)),
    log_whole(n_estimators=(32, 512, 128), num_leaves=(4, 256, 31), min_child_samples=(1, 256, 20)),
    real(colsample_bytree=(0.2, 1.0, 0.9)),
    choice(extra_trees=[False, True]),
    grows_with=["n_estimators"],
    leaves=["num_leaves"],
    name="lightgbm",
    threads="openmp",
    requires=("lightgbm",),
)
_XGBOOST = _boosting(
    f"{_BOOSTING}.xg_boost.classifier",
    log_real(learning_rate=(0.005, 0.5, 0.1)),
    log_real(min_child_weight=(0.01, 100.0, 1.0), reg_lambda=(0.001, 100.0, 1.0)),
    log_whole(n_estimators=(32, 512, 128)),
    whole(max_depth=(3, 12, 6)),
    real(colsample_bytree=(0.2, 1.0, 1.0)),
    grows_with=["n_estimators", "max_depth"],
    name="xgboost",
    requires=("xgboost",),
)
_CATBOOST = _boosting(
    f"{_BOOSTING}.cat_boost.classifier",
    log_real(learning_rate=(0.01, 0.5, 0.1), l2_leaf_reg=(1.0, 100.0, 3.0)),
    log_whole(iterations=(32, 512, 128)),
    whole(depth=(4, 8, 6)),
    grows_with=["iterations", "depth"],
    name="catboost",
    threads="estimator__thread_count",
    requires=("catboost",),
)
BOOSTED_TREES = (_HISTOGRAMS, _LIGHTGBM, _XGBOOST, _CATBOOST)
BOOSTED_TREES_OF_NUMBERS = (
    twin_of(_HISTOGRAMS, "sklearn.ensemble.HistGradientBoostingRegressor"),
    twin_of(_LIGHTGBM, f"{_BOOSTING}.light_gbm.regressor"),
    twin_of(_XGBOOST, f"{_BOOSTING}.xg_boost.regressor"),
    twin_of(_CATBOOST, f"{_BOOSTING}.cat_boost.regressor"),
)
BOOSTED_TREES_OF_EVENTS = tuple(
    replace(a, flags=replace(a.flags, accepts_sparse=bool(a.requires))) for a in BOOSTED_TREES
)
"""Algorithms for matrices of events: the libraries accept sparse matrices, scikit-learn does not.
The algorithms for tables never receive a sparse matrix. The flags of these algorithms stay
unchanged, so that studies of table spaces can be resumed."""


def _forest(exponent: float, *more: Group) -> list[Group]:
    """Return hyperparameters of forests; each split considers p^max_features of the p columns."""
    return [
        log_whole(n_estimators=(50, 500, 200), min_samples_leaf=(1, 40, 1)),
        real(max_features=(0.2, 1.0, exponent)),
        *more,
    ]


def _kernels() -> Group:
    """Return hyperparameters of support vector machines; gamma is in units of 1 / p."""
    kernel = choice(kernel=["rbf", "linear"])
    gamma = Float("rbf.gamma", (1e-2, 10.0), default=1.0, log=True)
    return [*kernel, *only_if(kernel, "rbf", [gamma]), *log_real(C=(1e-2, 1e3, 1.0))]


RANDOM_FOREST = trees(
    "sklearn.ensemble.RandomForestClassifier",
    *_forest(0.5, criterion()),
    fixed={"n_jobs": 1},
    threads="n_jobs",
    transforms={"max_features": "power_of_p"},
    growth={"n_estimators": 1.0},
    flags=Flags(weights="class_weight", stochastic=True),
    ignores=("rescale",),
)
_MLP = declare(
    f"{OWN}.mlp_classifier",
    whole(hidden_layers=(1, 3, 2)),
    log_whole(nodes_per_layer=(16, 256, 64)),
    log_real(alpha=(1e-7, 1e-1, 1e-4), learning_rate_init=(1e-4, 3e-2, 3e-3)),
    choice(activation=["relu", "tanh"]),
    fixed={"max_iter": 100, "early_stopping": True},
    flags=SEEDED,
    ignores=("balance",),
)
_K_NEAREST = declare(
    "sklearn.neighbors.KNeighborsClassifier",
    log_whole(n_neighbors=(1, 100, 7)),
    choice(weights=["uniform", "distance"], default="distance"),
    choice(p=[1, 2], default=2),
    name="k_nearest",
    transforms={"n_neighbors": "clip_n"},
    growth={"held_out": 1.0},
    ignores=("balance",),
)
_KERNEL_SVM = svc(
    _kernels(), name="kernel_svm", fixed={"cache_size": 200}, transforms={"rbf.gamma": "per_column"}
)
_TREES = ("random_forest", "extra_trees")
MODELS = (
    LOGISTIC_REGRESSION,
    RANDOM_FOREST,
    replace(RANDOM_FOREST, id="extra_trees", estimator="sklearn.ensemble.ExtraTreesClassifier"),
    _MLP,
    _K_NEAREST,
    _KERNEL_SVM,
)
_FOREST_OF_NUMBERS = twin_of(
    RANDOM_FOREST, "sklearn.ensemble.RandomForestRegressor", hyperparameters=space_of(*_forest(0.8))
)
MODELS_OF_NUMBERS = (
    linear("sklearn.linear_model.Ridge", log_real(alpha=(1e-3, 1e4, 1.0)), flags=SEEDED),
    _FOREST_OF_NUMBERS,
    twin_of(_FOREST_OF_NUMBERS, "sklearn.ensemble.ExtraTreesRegressor", id="extra_trees"),
    twin_of(_MLP, f"{OWN}.mlp_regressor", ignores=()),
    twin_of(_K_NEAREST, "sklearn.neighbors.KNeighborsRegressor", ignores=()),
    twin_of(
        _KERNEL_SVM,
        f"{OWN}.kernel_svm_regressor",
        hyperparameters=space_of(_kernels(), log_real(epsilon=(1e-3, 1.0, 0.1))),
    ),
)


_ONLY_IGNORED = Algorithm(id="none", only_ignored=True)


def _construct(target: str) -> Step:
    pairs = {"arithmetic": "ArithmeticCombinations", "interactions": "CategoryInteractions"}
    most = log_whole(n_combinations=(2, 64, 12))
    combining = (
        declare(f"{_CATALOGUE}.combinations.{made_by}", most, name=name, fixed={"target": target})
        for name, made_by in pairs.items()
    )
    return step("construct", NONE, *combining)


_IMPUTE = step(
    "impute",
    _ONLY_IGNORED,
    declare(f"{_CATALOGUE}.preparation.make_imputer", name="median"),
    declare(f"{_PREPARATION}.imputer_with_indicators", name="median_with_indicators"),
)


def _encode(target: str) -> Step:
    rare, dense = log_whole(min_frequency=(1, 50, 1)), Flags(output="dense")
    return step(
        "encode",
        _ONLY_IGNORED,
        declare(f"{_PREPARATION}.one_hot_encoder", rare, name="one_hot", flags=dense),
        declare(f"{_PREPARATION}.ordinal_encoder", rare, name="ordinal", flags=dense),
        declare(
            f"{_PREPARATION}.target_encoder",
            log_real(smooth=(0.1, 100.0, 10.0)),
            name="target",
            fixed={"target": target},
            flags=Flags(output="dense", stochastic=True, out_of_fold=True),
        ),
    )


_POWER = declare(
    "sklearn.preprocessing.PowerTransformer",
    name="power",
    flags=Flags(accepts_sparse=False, output="dense"),
)
_RESCALE = step("rescale", _ONLY_IGNORED, STANDARDIZE, QUANTILES, _POWER, MINMAX)
_NYSTROEM = nystroem(
    log_whole(n_components=(50, 1000, 200)),
    log_real(gamma=(1e-2, 10.0, 1.0)),
    fixed={"kernel": "rbf"},
    transforms={"n_components": "clip_n", "gamma": "per_column"},
)


_ROTATED_FOR_TREES = frozenset(
    (("preprocess", made), ("fit model", model)) for made in ("pca", "nystroem") for model in _TREES
)
"""Pairs to forbid, because trees split along unscaled columns and do not benefit from rotations."""


_AGGREGATE = replace(
    CONSTRUCT_FEATURES.algorithms[0],
    hyperparameters=space_of(
        log_whole(min_frequency=(2, 50, 3)),
        choice(aggregation=["binary", "count", "sum", "average"], default="count"),
    ),
)
_WINDOWS = declare(
    f"{_CATALOGUE}.event_windows.EventWindows",
    choice(windows=list(WINDOWS), default="all"),
    choice(aggregations=list(AGGREGATIONS), default="count_recency_sum_mean"),
    choice(levels=LEVELS, default="both"),
    choice(scaling=SCALINGS, default="none"),
    log_real(min_share=(1e-4, 1e-1, 1e-3)),
    name="windows",
    transforms={"levels": "levels_there"},
    flags=Flags(output="sparse"),
)
_BOOSTED_TREES_OF_SPARSE = tuple(
    replace(a, ignores=(*a.ignores, DENSIFY.name))
    for a in BOOSTED_TREES_OF_EVENTS
    if a.flags.accepts_sparse
)


def _space(name: str, first: Sequence[Step], models: Sequence[Algorithm], **more: Any) -> Space:
    """Return a space with the steps `first`, followed by the steps common to all modern spaces."""
    is_numbers = more.get("target") == "regression"
    score, balance = ("f_regression", ()) if is_numbers else ("f_classif", (BALANCE,))
    preprocess = step(
        "preprocess", NONE, percentile_of(score), PREPROCESS.algorithm("pca"), _NYSTROEM
    )
    steps = (*first, _RESCALE, *balance, preprocess, step("fit model", *models))
    return Space(name, steps, forbidden=_ROTATED_FOR_TREES, **more)


def _of_tables(name: str, models: Sequence[Algorithm], target: str) -> Space:
    return _space(name, (_construct(target), _IMPUTE, _encode(target)), models, target=target)


def _of_events(name: str, construct: Step, models: Sequence[Algorithm]) -> Space:
    """Return a space for events, which need no steps for missing values and categories."""
    needed = (
        replace(m, ignores=tuple(n for n in m.ignores if n not in {"impute", "encode"}))
        for m in models
    )
    return _space(name, (construct, DENSIFY), [*needed], data="events")


MODERN = _of_tables("modern", (*BOOSTED_TREES, *MODELS), "classification")
MODERN_REGRESSION = _of_tables(
    "modern_regression", (*BOOSTED_TREES_OF_NUMBERS, *MODELS_OF_NUMBERS), "regression"
)
MODERN_HEALTHCARE = _of_events(
    "modern_healthcare", CONSTRUCT_FEATURES, (*BOOSTED_TREES_OF_EVENTS, *MODELS)
)
EVENTS = _of_events(
    "events",
    step(CONSTRUCT_FEATURES.name, _WINDOWS, _AGGREGATE),
    (*_BOOSTED_TREES_OF_SPARSE, *MODELS),
)
"""Space for events: boosted trees get the sparse matrix; models that need dense data are
excluded."""


PORTFOLIOS = Path(__file__).parent / "portfolios"
"""Folder with two JSON files per portfolio, with and without models of the extra `boosting`.
Portfolios for many rows are in files of their own."""
_LISTS = "{}.json", "{}_without_boosting.json"
_LISTS_ON_MANY_ROWS = "{}_large.json", "{}_large_without_boosting.json"
_QUICK = frozenset({"k_nearest", "ridge"})
_MANY_CLASSES, _MANY_COLUMNS, _MOST_NEIGHBORS = 100, 2_000, 100_000


def portfolio_of(space: Space, objective: Objective | None = None) -> list[Configuration]:
    """Return the configurations to start with, in order; empty if the space has no portfolio.

    If libraries of the extra `boosting` are missing, a list without their models is used.
    Configurations outside the space are skipped. For more than 20,000 training rows, some spaces
    have a portfolio of their own, with larger boosted trees. For more than 100 classes or 2,000
    columns, the portfolio for few rows is used; up to 100,000 rows, nearest neighbors and ridge
    regression come first, because other models take too long.
    """
    known = objective or Objective()
    is_wide = (known.n_classes or 0) > _MANY_CLASSES or (known.n_columns or 0) > _MANY_COLUMNS
    portfolio = list[Configuration]()
    if (known.n_rows or 0) > MANY_ROWS and not is_wide:
        portfolio = _longest(_LISTS_ON_MANY_ROWS, space)
    portfolio = portfolio or _longest(_LISTS, space)
    if is_wide and (known.n_rows or 0) <= _MOST_NEIGHBORS:
        portfolio.sort(key=lambda found: _QUICK.isdisjoint(found.path))
    return portfolio


def _longest(names: Sequence[str], space: Space) -> list[Configuration]:
    """Return the list with the most configurations of the space, which the libraries limit."""
    return max((list(_of_space(PORTFOLIOS / n.format(space.name), space)) for n in names), key=len)


def _of_space(path: Path, space: Space) -> Iterator[Configuration]:
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    for document in known:
        try:
            yield Configuration.from_json(document, space)
        # A user's space may have the same name as a built-in space.
        except (UnknownName, KeyError, ValueError):
            continue
