"""Whether a model is better than the best constant prediction on the same rows.

Two tests decide: one on the test rows, and one on the rows that the folds held out. The second has
more rows, but its trial was chosen by them, so its p-value is multiplied by the number of
configurations (Bonferroni). Each has half of the 2.5 % of a one-sided interval of 95 %.
"""

from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import Split
from prefect_tune.tasks.objective.declaration import Usefulness
from prefect_tune.tasks.objective.metric import Metric
from prefect_tune.tasks.objective.paired_comparison import MOST_BLOCKS, paired_comparison
from prefect_tune.tasks.objective.predictions import Predictions
from prefect_tune.tasks.objective.risk import is_quick

LEVEL = 0.025
"""Probability that a model without any skill is called useful."""
RARE_SHARE = 0.1
"""A class with a smaller share of the training rows is rare."""
_FEW_BLOCKS = 20
_BLOCK_ROWS = 2_000_000
"""Largest number of rows times blocks, if each block costs a pass over the rows."""
_NORMAL = 1.96
"""Half of a 95 % interval, in standard errors."""


def rare_class(dataset: Dataset, split: Split) -> int | None:
    """Return the position of the rarest class of the training rows; None if no class is rare."""
    if not dataset.classes:
        return None
    y = dataset.y[split.is_training]
    counts = np.bincount(y, minlength=len(dataset.classes))
    rarest = int(np.argmin(counts))
    return rarest if counts[rarest] < RARE_SHARE * len(y) else None


def usefulness(
    dataset: Dataset,
    split: Split,
    metric: Metric,
    rows: NDArray[np.intp],
    predictions: Predictions,
) -> Usefulness | None:
    """Compare predictions of rows, shape (n,), with the best constant; None if undefined."""
    y, n_classes, rare = dataset.y[rows], len(dataset.classes), rare_class(dataset, split)
    try:
        compared = paired_comparison(
            metric,
            metric.best_guess(y, n_classes),
            predictions,
            y,
            None if dataset.groups is None else dataset.groups[rows],
            n_classes=n_classes,
            margin=0.0,
            level=LEVEL / 2,
            rng=np.random.default_rng(split.seed),
            most_blocks=_most_blocks(metric, len(y)),
        )
    except ValueError:  # the metric is undefined on these rows
        return None
    is_rare = np.zeros(len(y), dtype=bool) if rare is None else y == rare
    gain = compared.difference
    return Usefulness(
        compared.challenger.value, compared.champion.value, gain.value, gain.low, gain.high,
        compared.p, int(is_rare.sum()), int((predictions.label[is_rare] == rare).sum()),
    )  # fmt: skip


def _most_blocks(metric: Metric, n_rows: int) -> int:
    if metric.declared.row_losses:  # one pass over the rows serves all blocks
        return MOST_BLOCKS
    affordable = _BLOCK_ROWS // n_rows if is_quick(metric) else 0
    return min(max(affordable, _FEW_BLOCKS), MOST_BLOCKS)


def over_folds(folds: Sequence[Usefulness | None], n_configurations: int) -> Usefulness | None:
    """Return the mean over folds of the best of some configurations; None without all folds."""
    found = [fold for fold in folds if fold is not None]
    if not found or len(found) < len(folds):
        return None
    loss, constant, gain = np.mean([[f.loss, f.constant_loss, f.gain] for f in found], axis=0)
    half = sqrt(sum((f.high - f.low) ** 2 for f in found)) / 2 / len(found)
    p = float(ndtr(-gain * _NORMAL / half)) if half else float(gain <= 0)
    return Usefulness(
        float(loss), float(constant), float(gain), float(gain - half), float(gain + half),
        min(1.0, p * n_configurations), sum(f.n_rare for f in found),
        sum(f.n_found for f in found),
    )  # fmt: skip


def is_useless(test: Usefulness | None, held_out: Usefulness | None) -> bool:
    """Return whether neither the test rows nor the held-out rows show that a model is useful.

    A model that is no better than the constant on the test rows is useless in any case.
    """
    known = [one for one in (test, held_out) if one is not None]
    if not known:
        return False
    return known[0].gain <= 0 or all(one.p > LEVEL / len(known) for one in known)
