"""Estimators that train in epochs, and the meaning of an epoch for each.

An epoch is a pass over the rows (`partial_fit`), or a share of the configured trees or boosting
rounds (`warm_start`). The table lists estimators that end with the same model, to the last bit, if
training was interrupted. All others are fitted at once: logistic regression forgets its solver's
state, a second pass adds nothing to naive Bayes, and AdaBoost, support vector machines, neighbours,
discriminants, Gaussian processes and single trees have no epochs.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.ensemble import BaggingClassifier, BaggingRegressor

from prefect_tune.optimizers.space.algorithm import Algorithm, Step
from prefect_tune.optimizers.space.configuration import Choice, default_choice
from prefect_tune.optimizers.space.sampling import sample_choice
from prefect_tune.tasks.fitting.memory_estimate import MatrixSummary
from prefect_tune.tasks.fitting.recipe import Recipe, build, imported, recipe
from prefect_tune.tasks.objective.predictions import (
    Predictions,
    checked_predictions,
    n_rows,
    predictions_of,
)

_SAMPLES = 20
"""Configurations built to determine the kind of a model, and whether it trains in epochs."""


@dataclass(frozen=True, slots=True)
class Iterative:
    """Way in which an estimator trains in epochs.

    Attributes:
        rounds: Constructor argument that counts trees or rounds; empty if an epoch is a pass.
        settings: Arguments set regardless of the configuration. Early stopping, which holds back
            rows of its own, is replaced by the best epoch of the curve.
        traps: Reasons not to train in epochs, by the argument and value that rule it out.
    """

    rounds: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    traps: Mapping[tuple[str, str], str] = field(default_factory=dict)


_ALONE = {"early_stopping": False}
_NETWORK = Iterative(settings=_ALONE, traps={("solver", "lbfgs"): "makes no passes to stop after"})
_SGD = Iterative(
    settings=_ALONE,
    traps={("learning_rate", "adaptive"): "keeps no rate from pass to pass, so it would not adapt"},
)
_PERCEPTRON = Iterative(settings=_ALONE)
_BOOSTING = Iterative("n_estimators", {"n_iter_no_change": None})
_HISTOGRAMS = Iterative("max_iter", _ALONE)
_FOREST = Iterative("n_estimators")
_BAGGING = Iterative("n_estimators", {"oob_score": False})  # incompatible with `warm_start`

ITERATIVE: Mapping[str, Iterative] = {
    "sklearn.neural_network.MLPClassifier": _NETWORK,
    "sklearn.neural_network.MLPRegressor": _NETWORK,
    "sklearn.linear_model.SGDClassifier": _SGD,
    "sklearn.linear_model.SGDRegressor": _SGD,
    "sklearn.linear_model.Perceptron": _PERCEPTRON,
    "sklearn.ensemble.GradientBoostingClassifier": _BOOSTING,
    "sklearn.ensemble.GradientBoostingRegressor": _BOOSTING,
    "sklearn.ensemble.HistGradientBoostingClassifier": _HISTOGRAMS,
    "sklearn.ensemble.HistGradientBoostingRegressor": _HISTOGRAMS,
    "sklearn.ensemble.RandomForestClassifier": _FOREST,
    "sklearn.ensemble.RandomForestRegressor": _FOREST,
    "sklearn.ensemble.ExtraTreesClassifier": _FOREST,
    "sklearn.ensemble.ExtraTreesRegressor": _FOREST,
    "sklearn.ensemble.BaggingClassifier": _BAGGING,
    "sklearn.ensemble.BaggingRegressor": _BAGGING,
}
"""Trainings in epochs by import path. Subclasses are excluded, because they may do anything."""

_BY_NAME = {path.rsplit(".", 1)[1]: path for path in ITERATIVE}


def training_of(how: Recipe) -> Iterative | None:
    """Return how a recipe's estimator trains in epochs; None if it is fitted at once."""
    try:
        made = build(how, seed=0)
    except Exception:
        return None
    return None if why_at_once(model := how.model_in(made)) else ITERATIVE[_path_of(model)]


def why_at_once(estimator: Any) -> str:
    """Return why a seeded estimator does not train in epochs; empty if it does."""
    name, path = type(estimator).__name__, _path_of(estimator)
    if not path:
        return f"{name} does not train in epochs"
    parameters = estimator.get_params(deep=False)
    for (argument, value), why in ITERATIVE[path].traps.items():
        if parameters[argument] == value:
            return f"{name} with {argument}={value!r} {why}"
    if not isinstance(parameters["random_state"], int | np.integer):
        return f"{name} has no seed, so a resumed training would end differently"
    return ""


def rounds_after(epoch: int, epochs: int, rounds: int) -> int:
    """Return the number of trees or rounds after an epoch, counted from 1.

    The result is `rounds * epoch / epochs`, rounded, and at least 1: each of the `epochs` of a full
    training adds its share of the configured `rounds`, and a full training has exactly `rounds`.
    """
    return max(1, (2 * epoch * rounds + epochs) // (2 * epochs))


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed of one pass over the rows, so that every pass has its own order."""
    return int(np.random.SeedSequence(seed, spawn_key=(epoch,)).generate_state(1)[0])


def iterative_algorithms(step: Step, n_classes: int) -> frozenset[str]:
    """Return ids of a step's algorithms that train in epochs, at least with some values."""
    return frozenset(
        algorithm.id
        for algorithm in step.algorithms
        if any(training_of(how) for how in _recipes(algorithm, n_classes))
    )


def _recipes(algorithm: Algorithm, n_classes: int) -> Iterator[Recipe]:
    """Yield an algorithm's recipes with its default values and with some random ones."""
    if algorithm.is_passthrough:
        return
    summary = MatrixSummary(1000, 10, "dense", "float64", n_classes=n_classes)
    choices = drawn_choices(algorithm)
    yield from (recipe(algorithm, choice, summary, balanced=False) for choice in choices)


def drawn_choices(algorithm: Algorithm) -> Mapping[Choice, None]:
    """Return an algorithm's default values and some random ones, without duplicates."""
    rng = np.random.default_rng(0)
    drawn = (sample_choice(algorithm, rng) for _ in range(_SAMPLES))
    return dict.fromkeys([default_choice(algorithm), *drawn])


def _path_of(estimator: Any) -> str:
    path = _BY_NAME.get(type(estimator).__name__, "")
    return path if path and imported(path) is type(estimator) else ""


@dataclass(slots=True)
class MemberSum:
    """Sum of the predictions of the first n members of a forest or bag; shaped like them."""

    n: int = 0
    total: Any = 0.0


def staged_predictions(
    ensemble: Any,
    X: Any,
    classes: NDArray[Any],
    rounds: Sequence[int],
    begun: MemberSum | None = None,
) -> Iterator[Predictions]:
    """Yield the predictions after ascending numbers of rounds, in one pass over the rounds.

    To the last bit, they equal the output of `predict` of an ensemble with so many rounds.
    Forests and bags resume from `begun`, which an earlier call for the same rows has left, and
    update it in place.
    """
    is_classifier, predictions, at = bool(len(classes)), Predictions(np.empty(0)), 0
    if not n_rows(X):
        yield from (predictions_of(ensemble, X, classes) for _ in rounds)
        return
    if hasattr(ensemble, "staged_predict"):
        found = _boosted(ensemble, X, is_classifier=is_classifier)
    else:
        found = _averaged(ensemble, X, begun or MemberSum(), is_classifier=is_classifier)
    for wanted in rounds:
        while at < wanted:
            at, label, score = next(found)
            if at == wanted:
                predictions = checked_predictions(ensemble, X, classes, label, score)
        yield predictions


Stages = Iterator[tuple[int, NDArray[Any], NDArray[np.float64] | None]]
"""Number of rounds, labels or numbers, and probabilities."""


def _boosted(ensemble: Any, X: Any, *, is_classifier: bool) -> Stages:
    if not is_classifier:
        yield from ((n, found, None) for n, found in enumerate(ensemble.staged_predict(X), 1))
        return
    both = zip(ensemble.staged_predict(X), ensemble.staged_predict_proba(X), strict=True)
    yield from ((n, np.atleast_1d(label), score) for n, (label, score) in enumerate(both, 1))


def _averaged(ensemble: Any, X: Any, begun: MemberSum, *, is_classifier: bool) -> Stages:
    """Yield the running mean of the members, added in order as `predict` does."""
    members = _members(ensemble, X, begun.n, is_classifier=is_classifier)
    while True:
        if begun.n:
            mean = begun.total / begun.n
            if is_classifier:
                yield begun.n, ensemble.classes_.take(mean.argmax(axis=1), axis=0), mean
            else:
                yield begun.n, mean, None
        begun.total = begun.total + next(members)
        begun.n += 1


def _members(
    ensemble: Any, X: Any, first: int, *, is_classifier: bool
) -> Iterator[NDArray[np.float64]]:
    what = "predict_proba" if is_classifier else "predict"
    if isinstance(ensemble, BaggingClassifier | BaggingRegressor):
        alone = copy(ensemble).set_params(n_estimators=1)
        for i in range(first, len(ensemble.estimators_)):
            alone.estimators_ = ensemble.estimators_[i : i + 1]
            alone.estimators_features_ = ensemble.estimators_features_[i : i + 1]
            yield getattr(alone, what)(X)
        return
    checked = _as_trees_take_it(X)
    # A check for each tree would cost more than the prediction.
    for tree in ensemble.estimators_[first:]:
        yield getattr(tree, what)(checked, check_input=False)


def _as_trees_take_it(X: Any) -> Any:
    if not sparse.issparse(X):
        return np.ascontiguousarray(X, dtype=np.float32)
    rows = sparse.csr_matrix(X, dtype=np.float32)
    rows.indices, rows.indptr = rows.indices.astype(np.intc), rows.indptr.astype(np.intc)
    return rows
