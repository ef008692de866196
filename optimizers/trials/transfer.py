"""How much older observations tell about this study, from configurations evaluated in both.

Older losses are mapped to this study by a robust line through the pairs (Theil 1950, Sen 1968). An
older observation counts as w = v / (v + s^2) of a new one, with v the variance of all older losses
after the map, and s^2 the variance of the pairs around the line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Self

import numpy as np
from scipy.stats import rankdata

from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.space import Path
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.trials.outcome import Evaluation
from prefect_tune.optimizers.trials.prior import Prior
from prefect_tune.optimizers.trials.trial import Trial

LEAST_PAIRS = 4
"""Number of pairs from which the discount is estimated."""
LEAST_CORRELATION = 0.3
"""Rank correlation below which the prior is dropped."""
_CAUTIOUS = 0.3
"""Weight before there are enough pairs."""
_LARGEST = 0.95
_UNCHANGED = 4.0
"""Number of pairs that the expectation of an unchanged scale, a slope of 1, is worth."""
_STEEPEST = 3.0
_MAD = 1.4826
"""Standard deviation of a normal variable in median absolute deviations."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """The map from older to new losses, and the weight of an older observation."""

    n_pairs: int = 0
    correlation: float | None = None  # None for too few or constant pairs
    slope: float = 1.0
    intercept: float = 0.0
    weight: float = _CAUTIOUS

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]], older: Array) -> Self:
        """Return the transfer of pairs (older, new loss), given all older losses, shape (n,)."""
        if not pairs:
            return cls()
        x, y = np.array(pairs, dtype=np.float64).T
        slope = 1.0
        correlation = _spearman(x, y) if len(pairs) >= LEAST_PAIRS else None
        if correlation is not None:
            slope = _slope(x, y)
        intercept = float(np.median(y - slope * x))
        if correlation is None:
            return cls(len(pairs), None, slope, intercept)
        n_pairs, residuals = len(pairs), y - intercept - slope * x
        noise = _deviation(residuals) ** 2 * n_pairs / (n_pairs - 2)
        # More than half of the losses may be equal.
        deviation = _deviation(older - np.median(older)) or float(older.std())
        spread = (slope * deviation) ** 2
        is_kept = correlation >= LEAST_CORRELATION and spread > 0
        weight = min(spread / (spread + noise), _LARGEST) if is_kept else 0.0
        return cls(len(pairs), correlation, slope, intercept, weight)

    @property
    def is_dropped(self) -> bool:
        """Whether the older observations no longer count."""
        return self.weight == 0

    def mapped(self, losses: Array) -> Array:
        """Return older losses on the scale of this study."""
        return self.intercept + self.slope * losses


def _spearman(x: Array, y: Array) -> float | None:
    if not (np.ptp(x) and np.ptp(y)):
        return None
    return float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])


def _slope(x: Array, y: Array) -> float:
    slopes = [
        (y[j] - y[i]) / (x[j] - x[i]) for i, j in combinations(range(len(x)), 2) if x[i] != x[j]
    ]
    found = float(np.clip(np.median(slopes), 1 / _STEEPEST, _STEEPEST))
    return (len(x) * found + _UNCHANGED) / (len(x) + _UNCHANGED)


def _deviation(distances: Array) -> float:
    return float(_MAD * np.median(np.abs(distances)))


@dataclass(frozen=True, slots=True)
class OlderTrials:
    """Older observations as models use them now; none if there is no prior or it was dropped."""

    configurations: tuple[Configuration, ...]
    raw: Array
    weights: Array  # a new observation has weight 1
    transfer: Transfer

    @classmethod
    def of(cls, prior: Prior | None, transfer: Transfer) -> Self:
        """Return the newest observation of each configuration with its weight."""
        if prior is None or transfer.is_dropped:
            return cls((), np.empty(0), np.empty(0), transfer)
        trials = prior.newest
        return cls(
            tuple(trial.configuration for trial in trials),
            np.array([trial.loss for trial in trials]),
            np.array([transfer.weight**trial.runs_ago for trial in trials]),
            transfer,
        )

    def __len__(self) -> int:
        return len(self.configurations)

    def on(self, path: Path) -> "OlderTrials":
        """Return the observations of a path."""
        rows = [i for i, known in enumerate(self.configurations) if known.path == path]
        chosen = tuple(self.configurations[i] for i in rows)
        return OlderTrials(chosen, self.raw[rows], self.weights[rows], self.transfer)

    @property
    def losses(self) -> Array:
        """Losses on the scale of this study, shape (n,)."""
        return self.transfer.mapped(self.raw)

    def share(self, limits: dict[str, float] | None = None) -> list[Trial]:
        """Return as many of the observations as their weights sum to, evenly over their losses."""
        # For models without weights; unknown constrained quantities are at their `limits`.
        order = np.argsort(self.raw, kind="stable")
        reached = np.floor(np.cumsum(self.weights[order]) + 0.5)
        taken = order[np.diff(reached, prepend=0.0) > 0]
        losses = self.losses
        return [
            Trial(int(i) - len(self), Query(self.configurations[i])).completed(
                Evaluation(float(losses[i]), constraints=limits or {})
            )
            for i in sorted(taken)
        ]


def prior_decisions(prior: Prior, transfer: Transfer, n_repeated: int) -> dict[str, Any]:
    """Return the use of a prior as JSON values, for `Optimizer.decisions`."""
    return {
        "name": prior.name,
        "trials": len(prior.trials),
        "skipped": prior.n_skipped,
        "repeated": n_repeated,
        "pairs": transfer.n_pairs,
        "correlation": transfer.correlation,
        "weight": transfer.weight,
    }
