"""Large random tables of nine kinds, from which portfolios for many rows are learned."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from peer_tools.tables import TableFile

__all__ = ["GENERATED", "generated"]

_RNG = np.random.Generator


def _interactions(rng: _RNG, n: int) -> pd.DataFrame:
    """Products and nested conditions of seven of twelve columns."""
    X = rng.normal(size=(n, 12))
    score = 1.5 * np.sin(2 * X[:, 0] * X[:, 1]) + 2 * (X[:, 2] > 0) * (X[:, 3] > X[:, 4])
    return _frame(X, score + X[:, 5] * X[:, 6] - 0.5 + 0.8 * rng.normal(size=n))


def _additive(rng: _RNG, n: int) -> pd.DataFrame:
    """A sum of smooth functions of single columns."""
    X = rng.uniform(-2, 2, size=(n, 10))
    score = np.sin(3 * X[:, 0]) + np.exp(X[:, 1]) / 3 + np.abs(X[:, 2]) + X[:, 3] ** 2 / 2
    return _frame(X, score + X[:, 4:8] @ [1.0, -0.7, 0.4, 0.2] + 0.6 * rng.normal(size=n))


def _noise_columns(rng: _RNG, n: int) -> pd.DataFrame:
    """Forty columns; six columns affect the target."""
    X = rng.normal(size=(n, 40))
    score = X[:, 0] + X[:, 1] ** 2 - 1 + X[:, 2] * X[:, 3] + np.tanh(2 * X[:, 4]) - 0.6 * X[:, 5]
    return _two_classes(_frame(X, score + rng.normal(size=n)))


def _categories(rng: _RNG, n: int) -> pd.DataFrame:
    """Categories of 2,000, 300 and 40 values with effects; slopes that differ by category."""
    X, sizes = rng.normal(size=(n, 4)), {"product": 2_000, "town": 300, "brand": 40}
    drawn = {name: (size * rng.beta(0.7, 2.0, n)).astype(int) for name, size in sizes.items()}
    score = sum(rng.normal(size=size)[drawn[name]] for name, size in sizes.items())
    score += rng.normal(size=40)[drawn["brand"]] * X[:, 0] + X[:, 1] + 1.2 * rng.normal(size=n)
    texts = {name: [f"{name} {v}" for v in values] for name, values in drawn.items()}
    return _two_classes(_frame(X, score).assign(**texts))


def _rare(rng: _RNG, n: int) -> pd.DataFrame:
    """A positive class of about 4%, mostly in two corners; skewed columns with missing values."""
    X = rng.lognormal(size=(n, 15))
    corner = (X[:, 0] > 4) & (X[:, 1] < 0.7) | (X[:, 2] > 5) & (X[:, 3] * X[:, 4] > 2)
    score = 6 * corner + 0.4 * np.log(X[:, 5:8]).sum(axis=1) + rng.logistic(size=n) - 5
    X[rng.random(X.shape) < 0.05] = np.nan
    return _frame(X, np.where(score > 0, "yes", "no"))


def _classes(rng: _RNG, n: int) -> pd.DataFrame:
    """Four classes with curved borders in twelve correlated columns."""
    X = rng.normal(size=(n, 12)) @ (np.eye(12) + 0.3 * rng.normal(size=(12, 12)))
    scores = X @ rng.normal(size=(12, 4)) + (X[:, :6] ** 2) @ rng.normal(0, 0.5, size=(6, 4))
    return _frame(X, (scores + 1.5 * rng.gumbel(size=(n, 4))).argmax(axis=1))


def _one_hot(rng: _RNG, n: int) -> pd.DataFrame:
    """Two hundred sparse columns of zeros and ones, with effects of columns and of pairs."""
    X = (rng.random((n, 200)) < rng.uniform(0.01, 0.2, 200)).astype(float)
    score = X @ (rng.normal(size=200) * (rng.random(200) < 0.4))
    score += 2 * (X[:, :20] * X[:, 20:40]).sum(axis=1) + 0.5 * rng.normal(size=n)
    return _frame(X, score)


def _hierarchical(rng: _RNG, n: int) -> pd.DataFrame:
    """Stores in regions: levels by store, slopes by region, seasons, and a drift over time."""
    X, day = rng.normal(size=(n, 6)), rng.integers(0, 1_000, n)
    region_of = rng.integers(0, 12, 400)
    store = rng.integers(0, 400, n)
    region, slopes = region_of[store], rng.normal(size=(2, 12))
    score = rng.normal(size=400)[store] + slopes[0][region] * X[:, 0] + np.abs(X[:, 1])
    score += np.sin(day / 58) + slopes[1][region] * day / 500 * X[:, 2] + rng.normal(size=n)
    texts = {"store": [f"s{v}" for v in store], "region": [f"r{v}" for v in region]}
    return _frame(X, score).assign(day=day, **texts)


def _delays(rng: _RNG, n: int) -> pd.DataFrame:
    """Noisy delays of a year: effects of days at places, growing by the hour, and of carriers."""
    day, hour = rng.integers(0, 365, n), 5 + 18 * rng.beta(1.2, 1.2, n)
    sizes = {"origin": 12, "destination": 60, "carrier": 14}
    drawn = {name: (size * rng.beta(0.8, 1.5, n)).astype(int) for name, size in sizes.items()}
    weather = rng.gamma(0.5, 1.0, (365, 12))[day, drawn["origin"]]
    score = weather * hour / 10 + rng.normal(0, 0.4, (14, 12))[drawn["carrier"], drawn["origin"]]
    score += rng.normal(0, 0.3, (60, 7))[drawn["destination"], day % 7] + hour / 20
    seen = np.column_stack([weather[:, None] * rng.gamma(2, 0.5, (n, 2)), rng.normal(size=(n, 4))])
    times = {"month": day // 31, "day": day % 31, "weekday": day % 7, "hour": hour.round(1)}
    texts = {name: [f"{name} {v}" for v in values] for name, values in drawn.items()}
    return _frame(seen, score + rng.logistic(0, 0.7, n)).assign(**times, **texts)


def _two_classes(frame: pd.DataFrame, share: float = 0.5) -> pd.DataFrame:
    """Turn a numeric target into two classes; the first has a `share` of the rows."""
    y = frame["target"]
    return frame.assign(target=np.where(y > y.quantile(share), "yes", "no"))


def _frame(X: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    columns = [f"x{i}" for i in range(X.shape[1])]
    return pd.DataFrame(X.astype(np.float32), columns=columns).assign(target=y)


GENERATED: Mapping[str, tuple[Callable[[_RNG, int], pd.DataFrame], int]] = {
    "interactions": (lambda rng, n: _two_classes(_interactions(rng, n)), 240_000),
    "noise_columns": (_noise_columns, 120_000),
    "categories": (_categories, 160_000),
    "rare": (_rare, 320_000),
    "classes": (_classes, 120_000),
    "delays": (lambda rng, n: _two_classes(_delays(rng, n), 0.75), 300_000),
    "interactions_reg": (_interactions, 240_000),
    "additive": (_additive, 120_000),
    "one_hot": (_one_hot, 120_000),
    "hierarchical": (_hierarchical, 120_000),
    "delays_reg": (_delays, 300_000),
}
"""Generator and number of rows by name; the first six have classes. The rows of `interactions_reg`
and `delays_reg` are the rows of `interactions` and `delays`."""


def generated(name: str, folder: Path) -> TableFile:
    """Write a table to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    make, n = GENERATED[name]
    make(np.random.default_rng(0), n).to_parquet(path := folder / f"{name}.parquet", index=False)
    return TableFile(path, "target")
