"""Tables of learning curves: random pipelines trained for 50 epochs each, once, to be replayed.

Digits, half of them to train on, a quarter to validate; 30 % of the training labels are drawn
anew, or the good ones would hardly differ. The synthetic ones are power laws with noise.
"""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from ConfigSpace import (
    Categorical,
    ConfigurationSpace,
    EqualsCondition,
    Float,
    Integer,
)
from scipy.stats import qmc
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from prefect_tune.optimizers import Algorithm, Configuration, Space, Step
from prefect_tune.optimizers.space.encoding import Encoding

__all__ = ["EPOCHS", "TABLES", "Table", "load_table"]

EPOCHS = 50
RESCALED = ("none", "minmax", "standard")
TABLES = ("mlp", "sgd", "histgb", "pipe", "synth0", "synth1", "synth2")


class Table:
    """Configurations with their curves.

    Attributes:
        space: Where they were drawn.
        configurations: One per row.
        losses: Percent after each epoch, shape (n, 50).
        seconds: Of each epoch, with scoring, shape (n, 50).
    """

    def __init__(self, space: Space, rows: list[dict[str, Any]]) -> None:
        self.space = space
        self.configurations = [
            Configuration.from_json(json.loads(r["configuration"]), space) for r in rows
        ]
        self.losses = np.array([r["losses"] for r in rows])
        self.seconds = np.array([r["seconds"] for r in rows])


def load_table(name: str, folder: Path) -> Table:
    """Read a table, or record it: rows that are there from an earlier run are not made again."""
    n = 800 if name.startswith("synth") else 400
    path = folder / f"{name}-{n}.parquet"
    space = space_of(name)
    if not path.exists():
        partial = path.with_suffix(".jsonl")
        rows = [json.loads(x) for x in partial.read_text().splitlines()] if partial.exists() else []
        for row in recorded(name, space, n, len(rows)):
            with partial.open("a") as lines:
                lines.write(json.dumps(row) + "\n")
            rows.append(row)
        pq.write_table(pa.Table.from_pylist(rows), path)
    return Table(space, pq.read_table(path).to_pylist())


def space_of(name: str) -> Space:
    """The space of a table."""
    models = {"mlp": _mlp(), "sgd": _sgd(), "histgb": _histgb()}
    if name == "pipe":
        rescale = Step("rescale", tuple(Algorithm(id=i) for i in RESCALED))
        return Space(name, (rescale, Step("model", tuple(models.values()))))
    if name.startswith("synth"):
        u = ConfigurationSpace(space=[Float(f"u{i}", (0.0, 1.0), default=0.5) for i in range(6)])
        return Space(
            name, (Step("model", (Algorithm(id="curve", estimator="x.Y", hyperparameters=u),)),)
        )
    return Space(name, (Step("model", (models[name],)),))


def _mlp() -> Algorithm:
    space = ConfigurationSpace(
        space=[
            Categorical("solver", ["adam", "sgd"], default="adam"),
            Float("learning_rate", (1e-5, 0.1), log=True, default=1e-3),
            Float("alpha", (1e-7, 0.1), log=True, default=1e-4),
            Integer("batch_size", (16, 512), log=True, default=128),
            Integer("width", (8, 256), log=True, default=64),
            Integer("layers", (1, 2), default=1),
            Float("momentum", (0.1, 0.95), default=0.9),
            Float("beta_1", (0.1, 0.95), default=0.9),
        ]
    )
    space.add(EqualsCondition(space["momentum"], space["solver"], "sgd"))
    space.add(EqualsCondition(space["beta_1"], space["solver"], "adam"))
    return Algorithm(id="mlp", estimator="x.Mlp", hyperparameters=space)


def _sgd() -> Algorithm:
    space = ConfigurationSpace(
        space=[
            Categorical("loss", ["log_loss", "hinge"], default="hinge"),
            Float("alpha", (1e-7, 0.1), log=True, default=1e-4),
            Categorical("schedule", ["optimal", "constant"], default="optimal"),
            Float("eta0", (1e-5, 1.0), log=True, default=0.01),
            Categorical("penalty", ["l2", "l1"], default="l2"),
            Categorical("average", [False, True], default=False),
        ]
    )
    space.add(EqualsCondition(space["eta0"], space["schedule"], "constant"))
    return Algorithm(id="sgd", estimator="x.Sgd", hyperparameters=space)


def _histgb() -> Algorithm:
    space = ConfigurationSpace(
        space=[
            Float("learning_rate", (0.0032, 0.63), log=True, default=0.1),
            Integer("leaves", (4, 32), log=True, default=31),
            Float("l2", (1e-6, 10.0), log=True, default=1e-3),
            Integer("min_leaf", (2, 45), log=True, default=20),
            Float("max_features", (0.2, 1.0), default=1.0),
            Categorical("bins", [32, 64, 255], default=255),
        ]
    )
    return Algorithm(id="histgb", estimator="x.HistGb", hyperparameters=space)


def recorded(name: str, space: Space, n: int, first: int) -> Iterator[dict[str, Any]]:
    """Rows from the first one: scrambled Sobol points over paths and values, with their curves."""
    encoding = Encoding(space)
    n_steps = len(space.searched)
    sobol = qmc.Sobol(n_steps + len(encoding.columns), seed=7)
    points = sobol.random_base2(int(np.ceil(np.log2(n))))[:n]
    warnings.simplefilter("ignore")
    data = None if name.startswith("synth") else _digits()
    for number in range(first, n):
        point = points[number]
        path = tuple(
            step.algorithms[int(u * len(step.algorithms))].id
            for step, u in zip(space.searched, point, strict=False)
        )
        configuration = encoding.from_cube(path, point[n_steps:])
        if data is None:
            losses, seconds = _power_law(int(name[-1]), number, point[n_steps:])
        else:
            losses, seconds = _trained(configuration, number, *data)
        yield {
            "configuration": configuration.canonical,
            "losses": [float(x) for x in losses],
            "seconds": [float(x) for x in seconds],
        }


def _digits() -> tuple[np.ndarray, ...]:
    x, y = load_digits(return_X_y=True)
    x, rest, y, y_rest = train_test_split(x, y, test_size=0.5, stratify=y, random_state=0)
    held_out, _, y_held_out, _ = train_test_split(
        rest, y_rest, test_size=0.5, stratify=y_rest, random_state=0
    )
    rng = np.random.default_rng(0)
    noisy = np.where(rng.random(len(y)) < 0.3, rng.integers(10, size=len(y)), y)
    return x, noisy, held_out, y_held_out


def _trained(
    configuration: Configuration, number: int, x: np.ndarray, y: np.ndarray, *held_out: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Percent wrong of the held-out rows, and seconds, after each epoch."""
    choices = dict(configuration.choices)
    rescaled = choices["rescale"].algorithm if "rescale" in choices else "standard"
    x_held_out, y_held_out = held_out
    if rescaled != "none":
        scaler = (StandardScaler() if rescaled == "standard" else MinMaxScaler()).fit(x)
        x, x_held_out = scaler.transform(x), scaler.transform(x_held_out)
    model = choices["model"]
    values = dict(model.values)
    if model.algorithm == "histgb":
        return _boosted(_trees(values, number), (x, y), (x_held_out, y_held_out))
    estimator = _network(values) if model.algorithm == "mlp" else _linear(values)
    losses, seconds = np.full(EPOCHS, 100.0), np.zeros(EPOCHS)
    for epoch in range(EPOCHS):
        started = process_time()
        estimator.random_state = 1_000 * number + epoch
        try:
            estimator.partial_fit(x, y, classes=np.arange(10))
        except ValueError:  # it diverged, and costs nothing more
            break
        losses[epoch] = 100 * np.mean(estimator.predict(x_held_out) != y_held_out)
        seconds[epoch] = process_time() - started
    return losses, seconds


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


def _linear(values: dict[str, Any]) -> SGDClassifier:
    return SGDClassifier(
        loss=values["loss"],
        alpha=values["alpha"],
        learning_rate=values["schedule"],
        eta0=values.get("eta0", 0.01),
        penalty=values["penalty"],
        average=values["average"],
    )


def _trees(values: dict[str, Any], number: int) -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(
        learning_rate=values["learning_rate"],
        max_leaf_nodes=values["leaves"],
        l2_regularization=values["l2"],
        min_samples_leaf=values["min_leaf"],
        max_features=values["max_features"],
        max_bins=values["bins"],
        max_iter=EPOCHS,
        early_stopping=False,
        random_state=number,
    )


def _boosted(
    model: HistGradientBoostingClassifier,
    training: tuple[np.ndarray, np.ndarray],
    held_out: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """All rounds in one call; round by round takes 3.7 times as long."""
    started = process_time()
    staged = model.fit(*training).staged_predict(held_out[0])
    losses = np.array([100 * np.mean(predicted != held_out[1]) for predicted in staged])
    return losses, np.full(EPOCHS, (process_time() - started) / EPOCHS)


def _power_law(world: int, number: int, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`f = a - (a - .1)(1 + r t / 1.2)^-1.2` of t in (0, 1], and a cost that grows with e^(2 u)."""
    rng = np.random.default_rng([world, 0])
    best, weights = rng.uniform(0.2, 0.8, 6), rng.uniform(0.05, 0.6, 6)
    asymptote = 0.96 - float(weights @ (u - best) ** 2)
    rate = np.exp(4 * u[0] + 0.8 * np.sin(6 * u[2]))
    t = np.arange(1, EPOCHS + 1) / EPOCHS
    score = asymptote - (asymptote - 0.1) * (1 + rate * t / 1.2) ** -1.2
    score += np.random.default_rng([world, 1, number]).normal(0, 0.003, EPOCHS)
    return 100 * (1 - score), np.full(EPOCHS, 0.01 * np.exp(2 * u[1]))
