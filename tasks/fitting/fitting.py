"""Fitting one step on one fold: plain functions, no cache and no Prefect."""

import warnings
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from inspect import signature
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.configuration import Choice
from prefect_tune.storage.matrices import canonical
from prefect_tune.storage.store import Made
from prefect_tune.tasks.fitting.effective_values import effective_value
from prefect_tune.tasks.fitting.libraries import library_of
from prefect_tune.tasks.fitting.matrix_summary import MatrixSummary
from prefect_tune.tasks.fitting.memory_estimate import MemoryRule, check_memory, memory_rule
from prefect_tune.tasks.objective.metric import Predictions
from prefect_tune.tasks.repairs import REPAIRS, repairs_of

__all__ = [
    "FoldData",
    "Recipe",
    "build",
    "fit_model",
    "fit_transformer",
    "imported",
    "predict",
    "recipe",
    "step_seed",
    "unseeded_arguments",
]


_LAST = "estimator"
"""Name of the estimator behind its repairs."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What exactly an algorithm does to data of a given shape; this is what keys are made of.

    Attributes:
        algorithm: Its id.
        estimator: Dotted path of the class.
        arguments: Constructor arguments, as the estimator gets them.
        weights: How class weights reach it, or "none".
        library: Packages and versions that its classes come from.
        stochastic: Whether it takes a seed.
        repairs: What is done to the data just before it (see `tasks.repairs`), in order.
        memory: The rule that estimates the memory it needs, if there is one; in no key.
    """

    algorithm: str
    estimator: str
    arguments: Mapping[str, Any]
    weights: str
    library: str
    stochastic: bool
    repairs: tuple[str, ...] = ()
    memory: MemoryRule | None = None

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
        if self.repairs:
            document["repairs"] = list(self.repairs)
        return document


def recipe(
    algorithm: Algorithm, choice: Choice, summary: MatrixSummary, *, balanced: bool
) -> Recipe:
    """The algorithm with its effective arguments for data summarised so.

    Args:
        algorithm: The algorithm.
        choice: The values of its hyperparameters.
        summary: Of the matrix that reaches it, with the number of classes.
        balanced: Whether a step before asked for balanced class weights.
    """
    arguments = dict(algorithm.fixed)
    for name, value in sorted(choice.values, key=lambda item: "." in item[0]):
        rule = algorithm.transforms.get(name)
        if rule == "inert":
            continue
        argument = name.rsplit(".", 1)[-1]
        arguments[argument] = effective_value(rule, value, summary) if rule else value
    estimator = algorithm.import_path
    if summary.layout == "sparse":
        if algorithm.sparse_estimator:
            estimator, arguments = algorithm.sparse_estimator, {}
        arguments |= algorithm.sparse_fixed
    weights = algorithm.flags.weights if balanced else "none"
    if weights == "class_weight":
        arguments["class_weight"] = "balanced"
    how = Recipe(
        algorithm=algorithm.id,
        estimator=estimator,
        arguments=arguments,
        weights=weights,
        library="",
        stochastic=algorithm.flags.stochastic,
        repairs=repairs_of(algorithm.flags, dict(choice.values), summary.layout),
        memory=memory_rule(algorithm, estimator),
    )
    return replace(how, library=library_of(estimator, lambda: build(how, seed=0)))


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
        y: Classes of the training rows as the user wrote them, or their numbers, shape (n,).
        classes: All classes, sorted; empty when numbers are to be predicted.
        memory_limit_bytes: Most memory that fitting may take; None for that of the machine.
    """

    train: Any
    held_out: Any
    y: NDArray[Any]
    classes: NDArray[Any]
    memory_limit_bytes: int | None = None


def fit_transformer(how: Recipe, seed: int, data: FoldData) -> Made:
    """Fit on the training rows and transform both parts.

    Returns:
        Parts `estimator`, `train` and `held_out`, with the summary of `train`.

    Raises:
        WillNotFit: If it would need more memory than there is.
        ValueError: If no column is left, or a value is not finite; and what the estimator raises.
    """
    started = _started(how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on settings that the search will learn from losses
        estimator = _fit(how, seed, data)
        parts = {
            "train": canonical(estimator.transform(data.train)),
            "held_out": canonical(estimator.transform(data.held_out)),
        }
    for matrix in parts.values():
        _check_matrix(matrix, how.algorithm)
    summary = MatrixSummary.of(parts["train"])
    return Made({"estimator": estimator, **parts}, summary.to_json(), perf_counter() - started)


def fit_model(how: Recipe, seed: int, data: FoldData) -> tuple[Made, Predictions]:
    """Fit a classifier or regressor on the training rows and predict the held-out ones.

    Returns:
        Part `estimator`, and the predictions.

    Raises:
        WillNotFit: If it would need more memory than there is.
        Exception: What the estimator raises.
    """
    started = _started(how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = _fit(how, seed, data)
        predictions = predict(estimator, data.held_out, data.classes)
    summary = MatrixSummary.of(data.train).to_json()
    return Made({"estimator": estimator}, summary, perf_counter() - started), predictions


def predict(estimator: Any, X: Any, classes: NDArray[Any]) -> Predictions:
    """Positions of the predicted classes, and scores where the estimator gives them.

    Without classes, the predicted numbers in their place.
    """
    if not len(classes):
        numbers: Any = np.asarray(estimator.predict(X), dtype=np.float64).ravel()
        return Predictions(numbers)
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
    """The unfitted estimator of a recipe, behind its repairs.

    If it is stochastic, every `random_state` that it or an estimator inside it leaves open is set.
    """
    make, arguments = imported(how.estimator), dict(how.arguments)
    if how.stochastic and _takes_seed(make):
        arguments["random_state"] = seed
    estimator = make(**arguments)
    if how.stochastic and (names := unseeded_arguments(estimator)):
        seeds = np.random.default_rng(seed).integers(2**31, size=len(names))
        estimator.set_params(**dict(zip(names, seeds.tolist(), strict=True)))
    if not how.repairs:
        return estimator
    return Pipeline([*((name, REPAIRS[name]()) for name in how.repairs), (_LAST, estimator)])


def unseeded_arguments(estimator: Any) -> list[str]:
    """Names of what would make it differ from run to run, those of estimators inside it too."""
    parameters = estimator.get_params(deep=True) if hasattr(estimator, "get_params") else {}
    return sorted(
        name
        for name, value in parameters.items()
        if value is None and name.rsplit("__", 1)[-1] == "random_state"
    )


def _takes_seed(make: Callable[..., Any]) -> bool:
    """Whether it may be called with a `random_state`."""
    accepted = signature(make).parameters.values()
    return any(p.name == "random_state" or p.kind is p.VAR_KEYWORD for p in accepted)


def _started(how: Recipe) -> float:
    """The time from which a step counts: a process's first import of an estimator is no cost."""
    imported(how.estimator)
    return perf_counter()


def _fit(how: Recipe, seed: int, data: FoldData) -> Any:
    check_memory(
        how.estimator.rsplit(".", 1)[-1],
        how.memory,
        how.arguments,
        MatrixSummary.of(data.train),
        repairs=how.repairs,
        limit_bytes=data.memory_limit_bytes,
    )
    if how.weights == "class_weight":  # in figures: `partial_fit` does not take the word
        how = replace(how, arguments={**how.arguments, "class_weight": _class_weights(data.y)})
    estimator = build(how, seed)
    if how.weights == "sample_weight":
        argument = f"{_LAST}__sample_weight" if how.repairs else "sample_weight"
        weights = compute_sample_weight("balanced", data.y)
        return estimator.fit(data.train, data.y, **{argument: weights})
    return estimator.fit(data.train, data.y)


def _class_weights(y: NDArray[Any]) -> dict[Any, float]:
    """Weight of each class, by inverse frequency."""
    classes = np.unique(y)
    weights = compute_class_weight("balanced", classes=classes, y=y)
    return dict(zip(classes, weights.tolist(), strict=True))


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
def imported(path: str) -> Any:
    """What a dotted path names."""
    module, name = path.rsplit(".", 1)
    return getattr(import_module(module), name)
