"""How well scores separate two classes: AUROC with its interval, and calibration.

The interval comes from bootstraps over independent units, such as all rows of a patient.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest
from sklearn.metrics import brier_score_loss

from prefect_tune.tasks.objective.risk import weighted_areas

Array = NDArray[np.float64]

LEVEL = 0.95
"""Confidence of all intervals."""
_DRAWS, _FEWEST_DRAWS = 1_000, 200
_MOST_DRAWN = 10**8
"""Rows drawn in all bootstraps together; larger data gets fewer bootstraps."""
_MOST_WEIGHTS = 4_000_000
"""Weights computed at a time (32 MB)."""
_FEWEST_UNITS = 2
"""Least number of units with rows of each class."""
_MOST_BINS, _FEWEST_BINS = 10, 2
_ROWS_PER_BIN = 20


@dataclass(frozen=True, slots=True)
class Auroc:
    """Area under the ROC curve of all rows, with a 95 % percentile interval.

    `low` and `high` are None if a class has rows of one unit only; `n_draws` is then 0.
    """

    value: float
    low: float | None
    high: float | None
    n_draws: int
    n_units: int


def auroc_with_interval(
    is_positive: NDArray[np.bool_], score: Array, groups: NDArray[np.int64] | None, seed: int
) -> Auroc | None:
    """Return the AUROC of scores with its interval; None if a class has no rows.

    Bootstraps draw units (`groups`, shape (m,), or rows); those that lack a class are skipped.
    """
    m = len(score)
    if not 0 < np.count_nonzero(is_positive) < m:
        return None
    value = float(weighted_areas(score, is_positive, np.ones((1, m)))[0])
    unit = None if groups is None else np.unique(groups, return_inverse=True)[1]
    n_units = m if unit is None else int(unit.max()) + 1
    sides = (np.flatnonzero(side) for side in (is_positive, ~is_positive))
    if min(len(side if unit is None else np.unique(unit[side])) for side in sides) < _FEWEST_UNITS:
        return Auroc(value, None, None, 0, n_units)
    n_draws = int(np.clip(_MOST_DRAWN // m, _FEWEST_DRAWS, _DRAWS))
    rng, size = np.random.default_rng(seed), max(1, _MOST_WEIGHTS // m)
    areas = []
    for n in (min(size, n_draws - i) for i in range(0, n_draws, size)):
        drawn = rng.integers(n_units, size=(n_units, n))
        cell = (drawn * n + np.arange(n)).ravel()
        counts = np.bincount(cell, minlength=n_units * n).reshape(n_units, n).astype(np.float64)
        weights = counts if unit is None else counts[unit]
        areas.append(weighted_areas(score, is_positive, weights.T))
    known = np.concatenate(areas)
    known = known[np.isfinite(known)]
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return Auroc(value, low, high, n_draws, n_units)


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Rows with similar predictions; `low` to `high` is Wilson's 95 % interval of `observed`."""

    n: int
    predicted: float
    observed: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Predicted probabilities against observed shares.

    Attributes:
        bins: Bins of equal size, by predicted probability; equal probabilities share a bin.
        expected_error: Mean distance of predicted and observed, weighted by rows (ECE).
        brier: Mean squared error of the probabilities.
        brier_of_share: Mean squared error if every probability were the share of positive rows.
    """

    bins: tuple[CalibrationBin, ...]
    expected_error: float
    brier: float
    brier_of_share: float


def calibration(is_positive: NDArray[np.bool_], probability: Array) -> Calibration:
    """Return how well probabilities of the positive class, shape (m,), m > 0, are calibrated.

    Bins have equal size, as in `sklearn.calibration.calibration_curve` with quantiles.
    """
    n_bins = int(np.clip(len(probability) // _ROWS_PER_BIN, _FEWEST_BINS, _MOST_BINS))
    edges = np.quantile(probability, np.linspace(0, 1, n_bins + 1))
    place = np.searchsorted(edges[1:-1], probability)
    sizes = np.bincount(place, minlength=n_bins)
    predicted = np.bincount(place, probability, minlength=n_bins)
    observed = np.bincount(place, is_positive, minlength=n_bins)
    bins = tuple(
        _bin(int(sizes[i]), float(predicted[i]), int(observed[i])) for i in np.flatnonzero(sizes)
    )
    share = float(is_positive.mean())
    return Calibration(
        bins,
        sum(b.n * abs(b.predicted - b.observed) for b in bins) / len(probability),
        float(brier_score_loss(is_positive, np.clip(probability, 0, 1), labels=[False, True])),
        share * (1 - share),
    )


def _bin(n: int, predicted: float, positive: int) -> CalibrationBin:
    interval = binomtest(positive, n).proportion_ci(LEVEL, method="wilson")
    return CalibrationBin(n, predicted / n, positive / n, float(interval.low), float(interval.high))
