"""The modern spaces: each model gets only the preparation that can help it.

Boosted trees take a table's gaps and categories as they are. All other models get them imputed and
encoded, and all but trees get rescaled columns.

`portfolios` has configurations that did well on other data, to start a search with, built greedily
without features of the table as in auto-sklearn 2 (Feurer et al. 2022, section 4).
`tests/benchmarks/run flows/portfolio` makes them and measures their value on other data.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ConfigSpace import Categorical, ConfigurationSpace, EqualsCondition, Float, Integer
from ConfigSpace.hyperparameters import Hyperparameter

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags, Step
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.tasks.catalogue import classification, preprocessing
from prefect_tune.tasks.catalogue import preparation as rescaling
from prefect_tune.tasks.catalogue.boosted_trees import (
    BOOSTED_TREES,
    BOOSTED_TREES_OF_EVENTS,
    BOOSTED_TREES_OF_NUMBERS,
)
from prefect_tune.tasks.catalogue.construction import CONSTRUCT_FEATURES, DENSIFY
from prefect_tune.tasks.catalogue.event_windows import AGGREGATIONS, LEVELS, SCALINGS, WINDOWS
from prefect_tune.tasks.catalogue.preparation import BALANCE
from prefect_tune.tasks.catalogue.shared_spaces import KERNEL_GROWTH, ranges

_OWN = "prefect_tune.tasks.catalogue.estimators"
_FOREST = Flags(weights="class_weight", stochastic=True)


def _forest(*more: Hyperparameter, exponent: float) -> ConfigurationSpace:  # type: ignore[type-arg]
    """Return the hyperparameters of forests; a split considers p^max_features of p columns."""
    return ranges(
        Integer("n_estimators", (50, 500), default=200, log=True),
        Float("max_features", (0.2, 1.0), default=exponent),
        Integer("min_samples_leaf", (1, 40), default=1, log=True),
        *more,
    )


def _kernel_space(*more: Hyperparameter) -> ConfigurationSpace:  # type: ignore[type-arg]
    """Return hyperparameters of support vector machines; gamma is in units of 1 / p."""
    kernel = Categorical("kernel", ["rbf", "linear"], default="rbf")
    gamma = Float("rbf.gamma", (1e-2, 10.0), default=1.0, log=True)
    space = ranges(kernel, gamma, Float("C", (1e-2, 1e3), default=1.0, log=True), *more)
    space.add(EqualsCondition(gamma, kernel, "rbf"))
    return space


RANDOM_FOREST = Algorithm(
    id="random_forest",
    estimator="sklearn.ensemble.RandomForestClassifier",
    hyperparameters=_forest(
        Categorical("criterion", ["gini", "entropy"], default="gini"), exponent=0.5
    ),
    fixed={"n_jobs": 1},
    threads="n_jobs",
    transforms={"max_features": "power_of_p"},
    growth={"n_estimators": 1.0},
    flags=_FOREST,
    ignores=("rescale",),
    kind="trees",
)
EXTRA_TREES = replace(
    RANDOM_FOREST, id="extra_trees", estimator="sklearn.ensemble.ExtraTreesClassifier"
)
MLP = Algorithm(
    id="mlp",
    estimator=f"{_OWN}.mlp_classifier",
    hyperparameters=ranges(
        Integer("hidden_layers", (1, 3), default=2),
        Integer("nodes_per_layer", (16, 256), default=64, log=True),
        Float("alpha", (1e-7, 1e-1), default=1e-4, log=True),
        Float("learning_rate_init", (1e-4, 3e-2), default=3e-3, log=True),
        Categorical("activation", ["relu", "tanh"], default="relu"),
    ),
    fixed={"max_iter": 100, "early_stopping": True},
    flags=Flags(stochastic=True),
    ignores=("balance",),
)
K_NEAREST = Algorithm(
    id="k_nearest",
    estimator="sklearn.neighbors.KNeighborsClassifier",
    hyperparameters=ranges(
        Integer("n_neighbors", (1, 100), default=7, log=True),
        Categorical("weights", ["uniform", "distance"], default="distance"),
        Categorical("p", [1, 2], default=2),
    ),
    transforms={"n_neighbors": "clip_n"},
    growth={"held_out": 1.0},
    ignores=("balance",),
)
KERNEL_SVM = Algorithm(
    id="kernel_svm",
    estimator="sklearn.svm.SVC",
    hyperparameters=_kernel_space(),
    fixed={"cache_size": 200},
    transforms={"rbf.gamma": "per_column"},
    growth=KERNEL_GROWTH,
    flags=Flags(weights="class_weight"),
)
MODELS = (
    classification.LOGISTIC_REGRESSION,
    RANDOM_FOREST,
    EXTRA_TREES,
    MLP,
    K_NEAREST,
    KERNEL_SVM,
)
TREES = frozenset({"random_forest", "extra_trees"})

RANDOM_FOREST_OF_NUMBERS = replace(
    RANDOM_FOREST,
    estimator="sklearn.ensemble.RandomForestRegressor",
    hyperparameters=_forest(exponent=0.8),
    growth={"n_estimators": 1.0},
    flags=Flags(stochastic=True),
)
MODELS_OF_NUMBERS = (
    Algorithm(
        id="ridge",
        estimator="sklearn.linear_model.Ridge",
        hyperparameters=ranges(Float("alpha", (1e-3, 1e4), default=1.0, log=True)),
        flags=Flags(stochastic=True),
        kind="linear",
    ),
    RANDOM_FOREST_OF_NUMBERS,
    replace(
        RANDOM_FOREST_OF_NUMBERS, id="extra_trees", estimator="sklearn.ensemble.ExtraTreesRegressor"
    ),
    replace(MLP, estimator=f"{_OWN}.mlp_regressor", ignores=()),
    replace(K_NEAREST, estimator="sklearn.neighbors.KNeighborsRegressor", ignores=()),
    Algorithm(
        id="kernel_svm",
        estimator=f"{_OWN}.kernel_svm_regressor",
        hyperparameters=_kernel_space(Float("epsilon", (1e-3, 1.0), default=0.1, log=True)),
        fixed={"cache_size": 200},
        transforms={"rbf.gamma": "per_column"},
        growth=KERNEL_GROWTH,
    ),
)


_CATALOGUE = "prefect_tune.tasks.catalogue"
_PREPARATION = f"{_CATALOGUE}.gaps_and_categories"
_ONLY_IGNORED = Algorithm(id="none", only_ignored=True)


def _encoding(kind: str) -> Algorithm:
    return Algorithm(
        id=kind,
        estimator=f"{_PREPARATION}.{kind}_encoder",
        hyperparameters=ranges(Integer("min_frequency", (1, 50), default=1, log=True)),
        flags=Flags(output="dense"),
    )


def _combining(kind: str, name: str, target: str) -> Algorithm:
    return Algorithm(
        id=kind,
        estimator=f"{_CATALOGUE}.combinations.{name}",
        hyperparameters=ranges(Integer("n_combinations", (2, 64), default=12, log=True)),
        fixed={"target": target},
    )


def _construct(target: str) -> Step:
    return Step(
        "construct",
        (
            Algorithm(id="none"),
            _combining("arithmetic", "ArithmeticCombinations", target),
            _combining("interactions", "CategoryInteractions", target),
        ),
    )


_IMPUTE = Step(
    "impute",
    (
        _ONLY_IGNORED,
        Algorithm(id="median", estimator=f"{_CATALOGUE}.preparation.make_imputer"),
        Algorithm(id="median_with_indicators", estimator=f"{_PREPARATION}.imputer_with_indicators"),
    ),
)


def _encode(target: str) -> Step:
    return Step(
        "encode",
        (
            _ONLY_IGNORED,
            _encoding("one_hot"),
            _encoding("ordinal"),
            Algorithm(
                id="target",
                estimator=f"{_PREPARATION}.target_encoder",
                hyperparameters=ranges(Float("smooth", (0.1, 100.0), default=10.0, log=True)),
                fixed={"target": target},
                flags=Flags(output="dense", stochastic=True, out_of_fold=True),
            ),
        ),
    )


_POWER = Algorithm(
    id="power",
    estimator="sklearn.preprocessing.PowerTransformer",
    flags=Flags(accepts_sparse=False, output="dense"),
)
_RESCALE = Step(
    "rescale", (_ONLY_IGNORED, rescaling.STANDARDIZE, rescaling.QUANTILES, _POWER, rescaling.MINMAX)
)
_PCA = preprocessing.PCA
_NYSTROEM = Algorithm(
    id="nystroem",
    estimator="sklearn.kernel_approximation.Nystroem",
    memory="nystroem",
    hyperparameters=ranges(
        Integer("n_components", (50, 1000), default=200, log=True),
        Float("gamma", (1e-2, 10.0), default=1.0, log=True),
    ),
    fixed={"kernel": "rbf"},
    transforms={"n_components": "clip_n", "gamma": "per_column"},
    growth={"n_components": 1.0},
    flags=Flags(output="dense", stochastic=True),
)


def _preprocess(score: str) -> Step:
    percentile = preprocessing.percentile_of(score)
    return Step("preprocess", (preprocessing.NONE, percentile, _PCA, _NYSTROEM))


_ROTATED_FOR_TREES = frozenset(
    ((("preprocess", made), ("fit model", model)))
    for made in (_PCA.id, _NYSTROEM.id)
    for model in TREES
)
"""Pairs to forbid: trees split along unscaled columns, so rotated columns do not help them."""


def _of_events(models: Sequence[Algorithm]) -> Step:
    """Return the models for events, unchanged, because events have neither gaps nor categories."""
    of_tables = {"impute", "encode"}
    return Step(
        "fit model",
        tuple(
            replace(m, ignores=tuple(name for name in m.ignores if name not in of_tables))
            for m in models
        ),
    )


MODERN = Space(
    "modern",
    (
        _construct("classes"),
        _IMPUTE,
        _encode("classes"),
        _RESCALE,
        BALANCE,
        _preprocess("f_classif"),
        Step("fit model", (*BOOSTED_TREES, *MODELS)),
    ),
    forbidden=_ROTATED_FOR_TREES,
)
MODERN_REGRESSION = Space(
    "modern_regression",
    (
        _construct("numbers"),
        _IMPUTE,
        _encode("numbers"),
        _RESCALE,
        _preprocess("f_regression"),
        Step("fit model", (*BOOSTED_TREES_OF_NUMBERS, *MODELS_OF_NUMBERS)),
    ),
    forbidden=_ROTATED_FOR_TREES,
    target="numbers",
)
MODERN_HEALTHCARE = Space(
    "modern_healthcare",
    (
        CONSTRUCT_FEATURES,
        DENSIFY,
        _RESCALE,
        BALANCE,
        _preprocess("f_classif"),
        _of_events((*BOOSTED_TREES_OF_EVENTS, *MODELS)),
    ),
    forbidden=_ROTATED_FOR_TREES,
    data="events",
)
_AGGREGATE = replace(
    CONSTRUCT_FEATURES.algorithms[0],
    hyperparameters=ranges(
        Integer("min_frequency", (2, 50), default=3, log=True),
        Categorical("aggregation", ["binary", "count", "sum", "average"], default="count"),
    ),
)
_WINDOWS = Algorithm(
    id="windows",
    estimator=f"{_CATALOGUE}.event_windows.EventWindows",
    hyperparameters=ranges(
        Categorical("windows", list(WINDOWS), default="all"),
        Categorical("aggregations", list(AGGREGATIONS), default="count_recency_sum_mean"),
        Categorical("levels", LEVELS, default="both"),
        Categorical("scaling", SCALINGS, default="none"),
        Float("min_share", (1e-4, 1e-1), default=1e-3, log=True),
    ),
    transforms={"levels": "levels_there"},
    memory="event_windows",
    flags=Flags(output="sparse"),
)
_BOOSTED_TREES_OF_SPARSE = tuple(
    replace(a, ignores=(*a.ignores, DENSIFY.name))
    for a in BOOSTED_TREES_OF_EVENTS
    if a.flags.accepts_sparse
)
EVENTS = Space(
    "events",
    (
        Step(CONSTRUCT_FEATURES.name, (_WINDOWS, _AGGREGATE)),
        DENSIFY,
        _RESCALE,
        BALANCE,
        _preprocess("f_classif"),
        _of_events((*_BOOSTED_TREES_OF_SPARSE, *MODELS)),
    ),
    forbidden=_ROTATED_FOR_TREES,
    data="events",
)
"""Boosted trees get the matrix as constructed; models that need a dense one are excluded."""


PORTFOLIOS = Path(__file__).parent / "portfolios"
"""Folder with two JSON files for each space that has a portfolio; one needs no extra."""
_LISTS = "{}.json", "{}_without_boosting.json"
_QUICK = frozenset({K_NEAREST.id, "ridge"})
_MANY_CLASSES, _MANY_COLUMNS, _MOST_NEIGHBOURS = 100, 2_000, 100_000


def portfolio_of(space: Space, objective: Objective | None = None) -> list[Configuration]:
    """Return the configurations to start with, in order; none if the space has no portfolio.

    Without the extra `boosting`, they come from the list made without it. Configurations outside
    the space are skipped. With more than 100 classes or 2,000 columns, and at most 100,000 rows,
    nearest neighbours and ridge regression come first, because other models take too long.
    """
    found = [list(_of_space(PORTFOLIOS / name.format(space.name), space)) for name in _LISTS]
    portfolio, known = max(found, key=len), objective or Objective()
    is_wide = (known.n_classes or 0) > _MANY_CLASSES or (known.n_columns or 0) > _MANY_COLUMNS
    if is_wide and (known.n_rows or 0) <= _MOST_NEIGHBOURS:
        portfolio.sort(key=lambda found: _QUICK.isdisjoint(found.path))
    return portfolio


def _of_space(path: Path, space: Space) -> Iterator[Configuration]:
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    for document in known:
        try:
            yield Configuration.from_json(document, space)
        except (UnknownName, KeyError, ValueError):  # a user's space may share a name with ours
            continue
