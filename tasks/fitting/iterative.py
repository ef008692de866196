"""Which estimators train in epochs, and what one epoch of each is.

One epoch is a pass over the rows (`partial_fit`), or a share of the trees or rounds of boosting
that are configured (`warm_start`). Listed are those whose training can be gone on with and ends, to
the last bit, as if it had never been interrupted. Logistic regression forgets its solver's memory,
a second pass adds nothing to naive Bayes, and AdaBoost, support vector machines, neighbours,
discriminants, Gaussian processes and single trees have no epochs: they are fitted at once.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from prefect_tune.optimizers.space.algorithm import Algorithm, Step
from prefect_tune.optimizers.space.configuration import default_choice
from prefect_tune.optimizers.space.sampling import sample_choice
from prefect_tune.tasks.fitting.matrix_summary import MatrixSummary
from prefect_tune.tasks.fitting.recipe import Recipe, build, imported, recipe

__all__ = [
    "ITERATIVE",
    "Iterative",
    "epoch_seed",
    "iterative_algorithms",
    "reasons_at_once",
    "rounds_after",
    "training_of",
    "why_at_once",
]

_SAMPLES = 20
"""Configurations that are looked at to see whether an algorithm can train in epochs."""


@dataclass(frozen=True, slots=True)
class Iterative:
    """How an estimator trains in epochs.

    Attributes:
        rounds: Constructor argument that counts its trees or rounds, of which an epoch is a share;
            empty where an epoch is a pass over the rows.
        settings: Arguments that are set whatever was chosen. Stopping early is one of them: it
            holds rows of its own back, and the best epoch of the curve takes its place.
        traps: By argument and value with which there are no epochs after all, the reason.
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
_BAGGING = Iterative("n_estimators", {"oob_score": False})  # it is refused with `warm_start`

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
"""By import path. A subclass may do anything, so it is not meant."""

_BY_NAME = {path.rsplit(".", 1)[1]: path for path in ITERATIVE}


def training_of(how: Recipe) -> Iterative | None:
    """Return how the estimator of a recipe trains in epochs; None if it is fitted at once.

    An estimator that cannot be made is not iterative: fitting it will say why.
    """
    try:
        made = build(how, seed=0)
    except Exception:
        return None
    return None if why_at_once(model := model_in(made, how)) else ITERATIVE[_path_of(model)]


def why_at_once(estimator: Any) -> str:
    """Return why an estimator, seeded as it will be, does not train in epochs; empty if it does."""
    name, path = type(estimator).__name__, _path_of(estimator)
    if not path:
        return f"{name} does not train in epochs"
    parameters = estimator.get_params(deep=False)
    for (argument, value), why in ITERATIVE[path].traps.items():
        if parameters[argument] == value:
            return f"{name} with {argument}={value!r} {why}"
    if not isinstance(parameters["random_state"], int | np.integer):
        return f"{name} has no seed, so training that is gone on with would end otherwise"
    return ""


def model_in(estimator: Any, how: Recipe) -> Any:
    """Return the estimator that stands behind the repairs of a recipe."""
    return estimator[-1] if how.repairs else estimator


def rounds_after(epoch: int, epochs: int, rounds: int) -> int:
    """Return how many trees or rounds there are after an epoch.

    The nearest whole number to `rounds * epoch / epochs`, and at least 1: each epoch adds its share
    of what is configured, and a full training has exactly that.

    Args:
        epoch: The epoch, from 1.
        epochs: Epochs of a full training.
        rounds: What is configured.
    """
    return max(1, (2 * epoch * rounds + epochs) // (2 * epochs))


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed of one pass over the rows.

    Each pass needs one of its own, or all see the rows in the same order. It depends on nothing
    that an interruption could lose.
    """
    return int(np.random.SeedSequence(seed, spawn_key=(epoch,)).generate_state(1)[0])


def iterative_algorithms(step: Step, n_classes: int) -> frozenset[str]:
    """Return the ids of a step's algorithms that train in epochs, with some values at least."""
    return frozenset(a.id for a in step.algorithms if _can_train_in_epochs(a, n_classes))


def reasons_at_once(step: Step, n_classes: int) -> dict[str, str]:
    """Return why algorithms whose kind trains in epochs do not, with some values or always.

    Args:
        step: The step of models.
        n_classes: Number of classes; 0 when numbers are predicted.

    Returns:
        By id of the algorithm, the reason. Those whose kind has no epochs are left out.
    """
    reasons: dict[str, str] = {}
    for algorithm in step.algorithms:
        for how in _recipes(algorithm, n_classes):
            with suppress(Exception):  # one that cannot be made says why when it is fitted
                model = model_in(build(how, seed=0), how)
                if _path_of(model) and (why := why_at_once(model)):
                    reasons.setdefault(algorithm.id, why)
    return reasons


def _can_train_in_epochs(algorithm: Algorithm, n_classes: int) -> bool:
    return any(training_of(how) for how in _recipes(algorithm, n_classes))


def _recipes(algorithm: Algorithm, n_classes: int) -> Iterator[Recipe]:
    """Yield what an algorithm is with its default values and with some drawn ones."""
    if algorithm.is_passthrough:
        return
    summary = MatrixSummary(1000, 10, "dense", "float64", n_classes=n_classes)
    rng = np.random.default_rng(0)
    drawn = (sample_choice(algorithm, rng) for _ in range(_SAMPLES))
    choices = dict.fromkeys([default_choice(algorithm), *drawn])
    yield from (recipe(algorithm, choice, summary, balanced=False) for choice in choices)


def _path_of(estimator: Any) -> str:
    """Return the import path under which an estimator stands in the table; empty if it does not."""
    path = _BY_NAME.get(type(estimator).__name__, "")
    return path if path and imported(path) is type(estimator) else ""
