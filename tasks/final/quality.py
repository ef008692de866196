"""Prediction quality of a final model: loss intervals, class curves and regression errors.

Loss intervals come from bootstraps over independent units, such as all rows of a patient.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binomtest
from sklearn.metrics import precision_recall_fscore_support, roc_auc_score

from prefect_tune.tasks.objective.metric import Metric
from prefect_tune.tasks.objective.predictions import Array, Predictions
from prefect_tune.tasks.objective.risk import MOST_WEIGHTS, losses_of_draws

LEVEL = 0.95
"""Confidence of all intervals."""
_DRAWS, _SLOW_DRAWS = 1_000, 200
"""Number of bootstraps, and smaller number for metrics computed one bootstrap at a time."""
_FEWEST_UNITS = 2
"""Minimum number of units with rows of each of two classes."""
_MOST_BINS, _FEWEST_BINS = 10, 2
_ROWS_PER_BIN = 20
_MOST_BARS = 30


@dataclass(frozen=True, slots=True)
class LossInterval:
    """The loss on all rows with its 95% interval.

    `low` and `high` are None if there are too few units. `n_draws` is the number of bootstraps of
    `n_units` units, or 0 for the Wilson interval.
    """

    loss: float
    low: float | None
    high: float | None
    n_draws: int
    n_units: int


def loss_with_interval(
    metric: Metric,
    y: NDArray[Any],
    predictions: Predictions,
    groups: NDArray[np.int64] | None,
    *,
    n_classes: int,
    seed: int,
) -> LossInterval | None:
    """Return the loss of predictions for m rows with its interval; None if undefined.

    Bootstraps draw units (`groups`, shape (m,), or rows); bootstraps with an undefined loss are
    skipped. Error rates get the Wilson interval if each row is a unit.
    """
    try:
        loss, m = metric.loss(y, predictions, n_classes), len(y)
    except ValueError:
        return None
    unit = np.arange(m) if groups is None else np.unique(groups, return_inverse=True)[1]
    n_units, all_wrong = int(unit.max()) + 1, metric.declared.all_wrong
    if all_wrong is not None and n_units == m:
        ends = binomtest(round(m * loss / all_wrong), m).proportion_ci(LEVEL, method="wilson")
        return LossInterval(loss, all_wrong * float(ends.low), all_wrong * float(ends.high), 0, m)
    parts = [unit[y == c] for c in range(2)] if n_classes == 2 else [unit]
    if min(len(np.unique(part)) for part in parts) < _FEWEST_UNITS:
        return LossInterval(loss, None, None, 0, n_units)
    n_draws = _DRAWS if metric.declared.is_quick else _SLOW_DRAWS
    rng, size, losses = np.random.default_rng(seed), max(1, MOST_WEIGHTS // m), []
    for first in range(0, n_draws, size):
        drawn = [
            np.bincount(rng.integers(n_units, size=n_units), minlength=n_units)[unit]
            for _ in range(first, min(first + size, n_draws))
        ]
        losses.append(losses_of_draws(metric, y, predictions, n_classes, np.array(drawn)))
    low, high = np.nanquantile(np.concatenate(losses), [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return LossInterval(loss, low, high, n_draws, n_units)


def calibration(is_positive: NDArray[np.bool_], probability: Array) -> pd.DataFrame:
    """Return the predicted probability, observed rate and number of rows `n` of each bin.

    `low` to `high` is the Wilson 95% interval of `observed`. Bins have equal size, as in
    `sklearn.calibration.calibration_curve` with quantiles, which does not return the rows of bins.
    """
    rows = pd.DataFrame({"predicted": probability, "observed": is_positive})
    of_bins = rows.groupby(_bin_of(probability))
    bins = of_bins.mean().assign(n=of_bins.size(), positive=of_bins["observed"].sum())
    counts = bins[["positive", "n"]].itertuples(index=False)
    ends = [binomtest(*pair).proportion_ci(LEVEL, method="wilson") for pair in counts]
    return bins.assign(low=[e.low for e in ends], high=[e.high for e in ends])


def _bin_of(values: Array) -> NDArray[np.intp]:
    """Return the bin of each value, shape (m,).

    Bins have equal size, but equal values share a bin.
    """
    n_bins = int(np.clip(len(values) // _ROWS_PER_BIN, _FEWEST_BINS, _MOST_BINS))
    edges = np.quantile(values, np.linspace(0, 1, n_bins + 1))
    return np.searchsorted(edges[1:-1], values)


def class_quality(
    y: NDArray[Any], label: NDArray[Any], classes: Sequence[Any] | NDArray[Any]
) -> pd.DataFrame:
    """Return each class's number of rows, recall and precision in percent; nan without rows."""
    precision, recall, _, n_rows = precision_recall_fscore_support(
        y, label, labels=range(len(classes)), zero_division=np.nan
    )
    shares = {"recall": 100 * recall, "precision": 100 * precision}
    return pd.DataFrame({"label": classes, "rows": n_rows, **shares})


def class_curve(is_of_class: NDArray[np.bool_], score: Array) -> pd.DataFrame:
    """Return counts and rates of rows at or above each score threshold, inside and outside a class.

    Thresholds include 0, 0.5 and a value above all scores. The class and its complement must both
    have rows.
    """
    sides = [np.sort(score[is_of_class]), np.sort(score[~is_of_class])]
    fixed = [0.0, 0.5, np.nextafter(score.max(), np.inf)]
    quantiles = [np.quantile(side, np.linspace(0, 1, 101)) for side in sides]
    thresholds = np.unique(np.concatenate([*quantiles, fixed]))
    found, false = (len(side) - np.searchsorted(side, thresholds) for side in sides)
    curve = pd.DataFrame({"threshold": thresholds, "found": found, "false": false})
    return curve.assign(
        recall=found / len(sides[0]),
        false_positive_rate=false / len(sides[1]),
        precision=found / np.maximum(found + false, 1),
        auroc=float(roc_auc_score(is_of_class, score)),
    )


def errors_of_bins(y: Array, predicted: Array, by: Array) -> pd.DataFrame:
    """Return actual and predicted numbers in equal-size bins of the values `by`, in order.

    `low` to `high` covers the middle 80% of the actual numbers, and `error` is the mean absolute
    error.
    """
    rows = pd.DataFrame({"actual": y, "predicted": predicted, "error": np.abs(predicted - y)})
    bins = rows.groupby(_bin_of(by))
    low, high = (bins["actual"].quantile(share) for share in (0.1, 0.9))
    return bins.mean().assign(n=bins.size(), low=low, high=high)


def residual_counts(y: Array, predicted: Array) -> pd.DataFrame:
    """Return the number of rows by residual (actual minus predicted), without the outer 1%."""
    low, high = np.quantile(y - predicted, [0.005, 0.995]).tolist()
    high = low if isclose(low, high) else high  # too narrow for bins
    counts, edges = np.histogram(y - predicted, _MOST_BARS, (low, high))
    return pd.DataFrame({"residual": (edges[1:] + edges[:-1]) / 2, "rows": counts})
