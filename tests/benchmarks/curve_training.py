"""Curves of real trainings: percent of the rows predicted wrong, epoch by epoch, and their seconds.

Half of the rows are trained on, a quarter validates, a quarter tests. Of digits, 30 % of the
training labels are drawn anew, or the good ones would hardly differ.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from prefect_tune.optimizers import Configuration

__all__ = ["Curve", "Rows", "read_rows", "trained"]

_DIVERGED = 100.0
"""Percent wrong of what is no longer finite."""


@dataclass(frozen=True)
class Rows:
    """Features and labels of three parts."""

    train: tuple[np.ndarray, np.ndarray]
    held_out: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Curve:
    """Percent wrong on the held-out and on the test rows, and seconds, of each epoch."""

    losses: np.ndarray
    tests: np.ndarray
    seconds: np.ndarray


def read_rows(data: str, folder: Path | None) -> Rows:
    """The rows of a data set: `digits`, or a file `<data>.csv.gz` of a folder."""
    if data == "digits":
        x, y = load_digits(return_X_y=True)
    else:
        if folder is None:
            raise SystemExit(f"recording needs --data FOLDER with {data}.csv.gz")
        table = pd.read_csv(folder / f"{data}.csv.gz")
        x = table.drop(columns="target").to_numpy(np.float64)
        y = np.unique(table["target"].astype(str), return_inverse=True)[1]
    x, rest, y, y_rest = train_test_split(x, y, test_size=0.5, stratify=y, random_state=0)
    held_out, test, y_held_out, y_test = train_test_split(
        rest, y_rest, test_size=0.5, stratify=y_rest, random_state=0
    )
    if data == "digits":
        rng = np.random.default_rng(0)
        y = np.where(rng.random(len(y)) < 0.3, rng.integers(10, size=len(y)), y)
    return Rows((x, y), (held_out, y_held_out), (test, y_test))


def trained(configuration: Configuration, number: int, rows: Rows, epochs: int) -> Curve:
    """Train a configuration, whose number is its seed."""
    choices = dict(configuration.choices)
    rescaled = choices["rescale"].algorithm if "rescale" in choices else "standard"
    (x, y), (held_out, y_held_out), (test, y_test) = rows.train, rows.held_out, rows.test
    if rescaled != "none":
        scaler = (StandardScaler() if rescaled == "standard" else MinMaxScaler()).fit(x)
        x, held_out, test = (scaler.transform(part) for part in (x, held_out, test))
    rows = Rows((x, y), (held_out, y_held_out), (test, y_test))
    model = choices["model"]
    values = dict(model.values)
    with warnings.catch_warnings(action="ignore"):
        if model.algorithm == "histgb":
            return _boosted(_histograms(values, number, epochs), rows, epochs)
        if model.algorithm == "gb":
            return _boosted(_trees(values, number, epochs), rows, epochs)
        make = {"mlp": _network, "sgd": _linear, "faces": _momentum, "softmax": _softmax}
        return _passes(make[model.algorithm](values), number, rows, epochs)


def _passes(estimator: Any, number: int, rows: Rows, epochs: int) -> Curve:
    """Train pass by pass; what diverges costs nothing more."""
    losses, tests, seconds = (np.full(epochs, x) for x in (_DIVERGED, _DIVERGED, 0.0))
    classes = np.unique(rows.train[1])
    for epoch in range(epochs):
        started = process_time()
        estimator.random_state = 1_000 * number + epoch
        try:
            estimator.partial_fit(*rows.train, classes=classes)
        except ValueError:
            break
        losses[epoch] = _percent(estimator.predict(rows.held_out[0]), rows.held_out[1])
        seconds[epoch] = process_time() - started
        tests[epoch] = _percent(estimator.predict(rows.test[0]), rows.test[1])
    return Curve(losses, tests, seconds)


def _boosted(model: Any, rows: Rows, epochs: int) -> Curve:
    """All rounds in one call; round by round takes 3.7 times as long."""
    started = process_time()
    staged = model.fit(*rows.train).staged_predict(rows.held_out[0])
    losses = np.array([_percent(predicted, rows.held_out[1]) for predicted in staged])
    seconds = np.full(epochs, (process_time() - started) / epochs)
    staged = model.staged_predict(rows.test[0])
    return Curve(losses, np.array([_percent(p, rows.test[1]) for p in staged]), seconds)


def _percent(predicted: np.ndarray, y: np.ndarray) -> float:
    return 100 * float(np.mean(predicted != y))


def _network(values: dict[str, Any]) -> MLPClassifier:
    is_sgd = values["solver"] == "sgd"
    return MLPClassifier(
        (values["width"],) * values["layers"],
        solver=values["solver"],
        alpha=values["alpha"],
        batch_size=values["batch_size"],
        learning_rate_init=values["learning_rate"] * (10 if is_sgd else 1),
        momentum=values.get("momentum", 0.9),
        beta_1=values.get("beta_1", 0.9),
    )


def _momentum(values: dict[str, Any]) -> MLPClassifier:
    """Two layers, as the paper has them of faces."""
    return MLPClassifier(
        (100, 100),
        solver="sgd",
        alpha=values["alpha"],
        batch_size=values["batch_size"],
        learning_rate_init=values["learning_rate"],
        momentum=values["momentum"],
    )


def _softmax(values: dict[str, Any]) -> MLPClassifier:
    """Logistic regression by batches: a network without hidden layers."""
    return MLPClassifier(
        (),
        solver="sgd",
        alpha=values["alpha"],
        batch_size=values["batch_size"],
        learning_rate_init=values["learning_rate"],
        momentum=0.0,
    )


def _linear(values: dict[str, Any]) -> SGDClassifier:
    return SGDClassifier(
        loss=values["loss"],
        alpha=values["alpha"],
        learning_rate=values["schedule"],
        eta0=values.get("eta0", 0.01),
        penalty=values["penalty"],
        average=values["average"],
    )


def _histograms(values: dict[str, Any], number: int, epochs: int) -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(
        learning_rate=values["learning_rate"],
        max_leaf_nodes=values["leaves"],
        l2_regularization=values["l2"],
        min_samples_leaf=values["min_leaf"],
        max_features=values["max_features"],
        max_bins=values["bins"],
        max_iter=epochs,
        early_stopping=False,
        random_state=number,
    )


def _trees(values: dict[str, Any], number: int, epochs: int) -> GradientBoostingClassifier:
    return GradientBoostingClassifier(
        learning_rate=values["learning_rate"],
        max_depth=values["depth"],
        subsample=values["subsample"],
        max_features=values["max_features"],
        min_samples_leaf=values["min_leaf"],
        n_estimators=epochs,
        random_state=number,
    )
