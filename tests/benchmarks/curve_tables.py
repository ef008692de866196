"""Tables of learning curves: random configurations, each trained once in full, for replay.

The tables in `curves/` were recorded on images of digits, except a table of boosting on `puma8NH`.
The tables `olivetti` and `mnist_t10k` use the ranges of Belakaria et al. Half of the rows are for
training, a quarter for validation and a quarter for testing. For digits, 30% of the training labels
are redrawn, because good configurations would hardly differ otherwise. Seconds have two or three
digits. The synthetic tables are power laws with noise, made in a folder on first use.
"""

import json
from collections.abc import Iterator
from pathlib import Path
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

from prefect_tune.optimizers import Algorithm, Configuration, Space, Step
from prefect_tune.optimizers.space.vectors import Encoding

__all__ = ["TABLES", "Table", "load_table"]

RESCALED = ("none", "minmax", "standard")
KEPT = Path(__file__).parent / "curves"
SYNTHETIC_EPOCHS = 50
ON_DATA = ("olivetti", "mnist_t10k", "puma8NH")
ON_DIGITS = ("mlp", "sgd", "histgb", "pipe")
SYNTHETIC = ("synth0", "synth1", "synth2")
TABLES = (*ON_DATA, *ON_DIGITS, *SYNTHETIC)


class Table:
    """Configurations with their curves.

    Attributes:
        space: The space that the configurations were drawn from.
        configurations: Configuration of each row.
        losses: Error on the held-out rows after each epoch in percent, shape (n, epochs).
        tests: Error on the test rows in percent, same shape.
        seconds: Seconds of each epoch, including the scoring of the held-out rows, same shape.
    """

    def __init__(self, space: Space, rows: list[dict[str, Any]]) -> None:
        self.space = space
        self.configurations = [
            Configuration.from_json(json.loads(r["configuration"]), space) for r in rows
        ]
        self.losses = np.array([r["losses"] for r in rows])
        self.tests = np.array([r["tests"] for r in rows])
        self.seconds = np.array([r["seconds"] for r in rows])

    @property
    def epochs(self) -> int:
        """Number of epochs of a full training run."""
        return int(self.losses.shape[1])


def load_table(name: str, folder: Path) -> Table:
    """Read a table; a synthetic table is made in the folder if missing."""
    space = space_of(name)
    if name not in SYNTHETIC:
        return Table(space, pq.read_table(KEPT / f"{name}-400.parquet").to_pylist())
    path = folder / f"{name}-800.parquet"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        rows = list(power_laws(int(name[-1]), space, 800))
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path, compression="zstd")
    return Table(space, pq.read_table(path).to_pylist())


_NUMBERS = pa.list_(pa.float32())
SCHEMA = pa.schema(
    {"configuration": pa.string(), "losses": _NUMBERS, "tests": _NUMBERS, "seconds": _NUMBERS}
)


def space_of(name: str) -> Space:
    """Return the space of a table."""
    of_digits = (_mlp(), _sgd(), MODELS["histgb"])
    if name == "pipe":
        rescale = Step("rescale", tuple(Algorithm(id=i) for i in RESCALED))
        return Space(name, (rescale, Step("model", of_digits)))
    models = {"mlp": of_digits[0], "sgd": of_digits[1], **MODELS}
    return Space(name, (Step("model", (models.get(name, MODELS["synthetic"]),)),))


def _algorithm(name: str, *hyperparameters: Any) -> Algorithm:
    space = ConfigurationSpace(space=list(hyperparameters))
    return Algorithm(id=name, estimator=f"x.{name.title()}", hyperparameters=space)


def _mlp() -> Algorithm:
    solver = Categorical("solver", ["adam", "sgd"], default="adam")
    momentum = Float("momentum", (0.1, 0.95), default=0.9)
    beta = Float("beta_1", (0.1, 0.95), default=0.9)
    mlp = _algorithm(
        "mlp",
        *(solver, momentum, beta),
        Float("learning_rate", (1e-5, 0.1), log=True, default=1e-3),
        Float("alpha", (1e-7, 0.1), log=True, default=1e-4),
        Integer("batch_size", (16, 512), log=True, default=128),
        Integer("width", (8, 256), log=True, default=64),
        Integer("layers", (1, 2), default=1),
    )
    mlp.hyperparameters.add(EqualsCondition(momentum, solver, "sgd"))
    mlp.hyperparameters.add(EqualsCondition(beta, solver, "adam"))
    return mlp


def _sgd() -> Algorithm:
    schedule = Categorical("schedule", ["optimal", "constant"], default="optimal")
    eta = Float("eta0", (1e-5, 1.0), log=True, default=0.01)
    sgd = _algorithm(
        "sgd",
        *(schedule, eta),
        Categorical("loss", ["log_loss", "hinge"], default="hinge"),
        Float("alpha", (1e-7, 0.1), log=True, default=1e-4),
        Categorical("penalty", ["l2", "l1"], default="l2"),
        Categorical("average", [False, True], default=False),
    )
    sgd.hyperparameters.add(EqualsCondition(eta, schedule, "constant"))
    return sgd


MODELS = {
    "histgb": _algorithm(
        "histgb",
        Float("learning_rate", (0.0032, 0.63), log=True, default=0.1),
        Integer("leaves", (4, 32), log=True, default=31),
        Float("l2", (1e-6, 10.0), log=True, default=1e-3),
        Integer("min_leaf", (2, 45), log=True, default=20),
        Float("max_features", (0.2, 1.0), default=1.0),
        Categorical("bins", [32, 64, 255], default=255),
    ),
    # Belakaria et al. (appendix) give these ranges and the next ones.
    "olivetti": _algorithm(
        "faces",
        Float("learning_rate", (1e-6, 1.0), log=True, default=1e-3),
        Integer("batch_size", (8, 128), log=True, default=32),
        Float("alpha", (1e-7, 1e-3), log=True, default=1e-4),
        Float("momentum", (0.1, 0.9), default=0.9),
    ),
    "mnist_t10k": _algorithm(
        "softmax",
        Float("learning_rate", (1e-6, 1.0), log=True, default=1e-3),
        Float("alpha", (0.0, 1.0), default=1e-4),
        Integer("batch_size", (20, 2000), log=True, default=200),
    ),
    "puma8NH": _algorithm(
        "gb",
        Float("learning_rate", (0.0032, 0.63), log=True, default=0.1),
        Integer("depth", (1, 6), default=3),
        Float("subsample", (0.3, 1.0), default=1.0),
        Float("max_features", (0.2, 1.0), default=1.0),
        Integer("min_leaf", (1, 64), log=True, default=1),
    ),
    "synthetic": _algorithm("curve", *(Float(f"u{i}", (0.0, 1.0)) for i in range(6))),
}


def power_laws(world: int, space: Space, n: int) -> Iterator[dict[str, Any]]:
    """Return rows of scrambled Sobol points with their curves."""
    encoding = Encoding(space)
    sobol = qmc.Sobol(1 + len(encoding.columns), seed=7)
    for number, point in enumerate(sobol.random_base2(int(np.ceil(np.log2(n))))[:n]):
        losses, tests, seconds = _power_law(world, number, point[1:], SYNTHETIC_EPOCHS)
        yield {
            "configuration": encoding.from_cube(("curve",), point[1:]).canonical,
            "losses": losses.tolist(),
            "tests": tests.tolist(),
            "seconds": seconds.tolist(),
        }


def _power_law(
    world: int, number: int, u: np.ndarray, epochs: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return f = a - (a - .1)(1 + r t / 1.2)^-1.2 for t in (0, 1], and a cost growing as e^(2 u).

    Test scores have no noise.
    """
    rng = np.random.default_rng([world, 0])
    best, weights = rng.uniform(0.2, 0.8, 6), rng.uniform(0.05, 0.6, 6)
    asymptote = 0.96 - float(weights @ (u - best) ** 2)
    rate = np.exp(4 * u[0] + 0.8 * np.sin(6 * u[2]))
    t = np.arange(1, epochs + 1) / epochs
    score = asymptote - (asymptote - 0.1) * (1 + rate * t / 1.2) ** -1.2
    noise = np.random.default_rng([world, 1, number]).normal(0, 0.003, epochs)
    return 100 * (1 - score - noise), 100 * (1 - score), np.full(epochs, 0.01 * np.exp(2 * u[1]))
