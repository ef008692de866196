"""Fitting one step on one fold: plain functions, no cache and no Prefect."""

import warnings
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from math import log
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.class_weight import compute_sample_weight

from prefect_tune.optimizers.configuration import Choice
from prefect_tune.optimizers.space import Algorithm
from prefect_tune.storage.codec import canonical, layout
from prefect_tune.storage.store import Made
from prefect_tune.tasks.metric import Predictions

__all__ = [
    "Facts",
    "FoldData",
    "Recipe",
    "build",
    "fit_model",
    "fit_transformer",
    "predict",
    "recipe",
    "step_seed",
]


@dataclass(frozen=True, slots=True)
class Facts:
    """What later steps must know of a matrix to compute their keys without reading it.

    Attributes:
        rows: Rows to train on.
        columns: Columns.
        layout: dense, sparse, frame or pickle (anything else).
        dtype: Type of the elements; empty for frames.
        density: Share of elements that are not zero.
        minimum: Smallest element of the training rows; None for frames.
    """

    rows: int
    columns: int
    layout: str
    dtype: str = ""
    density: float = 1.0
    minimum: float | None = None

    @classmethod
    def of(cls, X: Any) -> "Facts":
        """The facts of a training matrix."""
        rows, columns = X.shape
        kind = layout(X)
        if kind not in ("dense", "sparse"):
            return cls(rows, columns, kind)
        n_nonzero = X.nnz if kind == "sparse" else int(np.count_nonzero(X))
        minimum = float(X.min()) if rows and columns else None
        return cls(rows, columns, kind, str(X.dtype), n_nonzero / max(rows * columns, 1), minimum)

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What exactly an algorithm does to data of a given shape; this is what keys are made of.

    Attributes:
        algorithm: Its id.
        estimator: Dotted path of the class.
        arguments: Constructor arguments, as the estimator gets them.
        weights: How class weights reach it, or "none".
        library: Package and version that the class comes from.
        stochastic: Whether it takes a seed.
    """

    algorithm: str
    estimator: str
    arguments: Mapping[str, Any]
    weights: str
    library: str
    stochastic: bool

    def to_json(self, seed: int) -> dict[str, Any]:
        """All that can change what comes out."""
        document: dict[str, Any] = {
            "algorithm": self.algorithm,
            "estimator": self.estimator,
            "arguments": dict(self.arguments),
            "library": self.library,
        }
        if self.weights != "none":
            document["weights"] = self.weights
        if self.stochastic:
            document["seed"] = seed
        return document


def recipe(algorithm: Algorithm, choice: Choice, facts: Facts, *, balanced: bool) -> Recipe:
    """The algorithm with its effective arguments for data with these facts.

    Args:
        algorithm: The algorithm.
        choice: The values of its hyperparameters.
        facts: Of the matrix that reaches it.
        balanced: Whether a step before asked for balanced class weights.
    """
    arguments = dict(algorithm.fixed)
    for name, value in choice.values:
        rule = algorithm.transforms.get(name)
        arguments[name.rsplit(".", 1)[-1]] = _TRANSFORMS[rule](value, facts) if rule else value
    estimator = algorithm.estimator
    if facts.layout == "sparse":
        if algorithm.sparse_estimator:
            estimator, arguments = algorithm.sparse_estimator, {}
        arguments |= algorithm.sparse_fixed
    weights = algorithm.flags.weights if balanced else "none"
    if weights == "class_weight":
        arguments["class_weight"] = "balanced"
    return Recipe(
        algorithm=algorithm.id,
        estimator=estimator,
        arguments=arguments,
        weights=weights,
        library=_library(estimator),
        stochastic=algorithm.flags.stochastic,
    )


def step_seed(study_seed: int, step: str, fold: int) -> int:
    """The seed of a step's estimators in a fold; the trial does not enter."""
    key = (zlib.crc32(step.encode()), fold)
    state = np.random.SeedSequence(study_seed, spawn_key=key).generate_state(1)
    return int(state[0])


@dataclass(frozen=True, slots=True)
class FoldData:
    """What an algorithm learns from, and what it is judged on.

    Attributes:
        train: Training rows.
        held_out: Rows held out.
        y: Classes of the training rows as the user wrote them, shape (n,).
        classes: All classes, sorted.
    """

    train: Any
    held_out: Any
    y: NDArray[Any]
    classes: NDArray[Any]


def fit_transformer(how: Recipe, seed: int, data: FoldData) -> Made:
    """Fit on the training rows and transform both parts.

    Returns:
        Parts `estimator`, `train` and `held_out`, with the facts of `train`.

    Raises:
        ValueError: If no column is left, or a value is not finite; and what the estimator raises.
    """
    started = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on settings that the search will learn from losses
        estimator = _fit(how, seed, data)
        parts = {
            "train": canonical(estimator.transform(data.train)),
            "held_out": canonical(estimator.transform(data.held_out)),
        }
    for matrix in parts.values():
        _check_matrix(matrix, how.algorithm)
    facts = Facts.of(parts["train"])
    return Made({"estimator": estimator, **parts}, facts.to_json(), perf_counter() - started)


def fit_model(how: Recipe, seed: int, data: FoldData) -> tuple[Made, Predictions]:
    """Fit a classifier on the training rows and predict the held-out ones.

    Returns:
        Part `estimator`, and the predictions.

    Raises:
        Exception: What the estimator raises.
    """
    started = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = _fit(how, seed, data)
        predictions = predict(estimator, data.held_out, data.classes)
    facts = Facts.of(data.train).to_json()
    return Made({"estimator": estimator}, facts, perf_counter() - started), predictions


def predict(estimator: Any, X: Any, classes: NDArray[Any]) -> Predictions:
    """Positions of the predicted classes, and scores where the estimator gives them."""
    label = np.searchsorted(classes, estimator.predict(X)).astype(np.int32)
    if hasattr(estimator, "predict_proba"):
        score = np.asarray(estimator.predict_proba(X), dtype=np.float64)
    elif hasattr(estimator, "decision_function"):
        score = np.asarray(estimator.decision_function(X), dtype=np.float64)
        score = np.column_stack([-score, score]) if score.ndim == 1 else score
    else:
        return Predictions(label)
    if score.shape[1] != len(classes):  # a class that no training row had
        full = np.zeros((len(score), len(classes)))
        full[:, np.searchsorted(classes, estimator.classes_)] = score
        score = full
    return Predictions(label, score)


def build(how: Recipe, seed: int) -> Any:
    """The unfitted estimator of a recipe."""
    estimator = _imported(how.estimator)(**how.arguments)
    if how.stochastic:
        estimator.set_params(random_state=seed)
    return estimator


def _fit(how: Recipe, seed: int, data: FoldData) -> Any:
    estimator = build(how, seed)
    if how.weights == "sample_weight":
        weights = compute_sample_weight("balanced", data.y)
        return estimator.fit(data.train, data.y, sample_weight=weights)
    return estimator.fit(data.train, data.y)


def _check_matrix(matrix: Any, algorithm: str) -> None:
    if matrix.shape[1] == 0:
        raise ValueError(f"{algorithm} leaves no column")
    values = matrix.data if sparse.issparse(matrix) else matrix
    if (
        isinstance(values, np.ndarray)
        and values.dtype.kind == "f"
        and not np.isfinite(values).all()
    ):
        raise ValueError(f"{algorithm} makes values that are not finite")


@cache
def _imported(path: str) -> Any:
    module, name = path.rsplit(".", 1)
    return getattr(import_module(module), name)


@cache
def _library(estimator: str) -> str:
    """Name and version of the package that a class comes from."""
    package = estimator.split(".", 1)[0]
    if package == "prefect_tune":  # our own steps build on it, and count by the artifact format
        package = "sklearn"
    return f"{package} {import_module(package).__version__}"


def _logp_max_features(value: Any, facts: Facts) -> int:
    p = facts.columns
    return max(1, min(p // 2, int(value * (log(p) + 1))))


_TRANSFORMS = {
    "clip_n": lambda value, facts: min(value, facts.rows),
    "clip_p": lambda value, facts: min(value, facts.columns),
    "depth_factor": lambda value, facts: max(1, round(value * facts.columns)),
    "logp_max_features": _logp_max_features,
}
"""Rules that fit a hyperparameter to the size of the data, by the names that algorithms use."""
