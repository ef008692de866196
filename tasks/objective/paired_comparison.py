"""Paired comparison of two models on rows that neither was trained on or selected by.

Any metric is compared through jackknife pseudo-values (Efron and Stein 1981): rows, or groups kept
whole, are dealt into blocks, and a block's pseudo-value is its effect on the difference in loss.
A one-sided t-test and a sign-flip permutation test on the pseudo-values must both favour the
challenger. For the error of single rows, the permutation test is the exact sign test of McNemar.

Over the nights of a series, decision k since the last promotion is made at the level
0.05 k^-1.5 / zeta(1.5). The levels sum to 0.05, so by the union bound a champion that is as good as
all its challengers is replaced by chance in at most 5 % of all series, whatever the dependence
between nights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf, sqrt
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit, zeta

from prefect_tune.optimizers.plugins import loaded
from prefect_tune.tasks.objective.metric import Metric
from prefect_tune.tasks.objective.predictions import Predictions
from prefect_tune.tasks.objective.risk import Array, Targets, weighted_losses

LEVEL = 0.05
"""Probability of any false promotion over all nights since the last promotion."""
CONFIDENCE = 0.95
"""Confidence of the intervals."""
LEAST_ROWS = 200
"""Fewest fresh rows on which models are compared."""
MOST_BLOCKS = 200
_DECAY = 1.5
"""Exponent of the levels: nearer to 1, late nights have more power and the first night less."""
_FEWEST_FLIPS, _MOST_FLIPS = 10_000, 400_000
_FLIPS_PER_LEVEL = 40
"""Permutations, as a multiple of 1 / level, so that the smallest p-value is far below the level."""
_FLIPS_AT_ONCE = 10_000
_MOST_WEIGHTS = 4_000_000
"""Weights computed at a time (32 MB)."""
_ROUNDING = 1e-9
"""Relative tolerance at which two sums of pseudo-values count as equal."""

Blocks = NDArray[np.intp]
"""Block of each row, shape (n,)."""
LossWithoutBlocks = Callable[[Targets, Predictions, Blocks], Array]
"""Maps true values, predictions and blocks to the loss without each block, shape (B,)."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Losses of two models on the same rows.

    Attributes:
        difference: Loss of the champion minus loss of the challenger.
        p: p-value of the hypothesis that the difference is at most the margin: the larger one of
            the two tests. The permutation test is skipped if the t-test favours the champion.
        level: Level of this decision.
    """

    champion: Estimate
    challenger: Estimate
    difference: Estimate
    p: float
    level: float
    n_rows: int
    n_blocks: int

    @property
    def is_better(self) -> bool:
        """Whether the challenger is better by more than the margin."""
        return self.p <= self.level


def level_of(decision: int) -> float:
    """Return the level of a decision, counted from 1 since the last promotion."""
    return LEVEL * decision**-_DECAY / float(zeta(_DECAY))


def loss_without_blocks(metric: Metric, n_classes: int) -> LossWithoutBlocks:
    """Return a metric as a function of blocks to leave out; `n_classes` is 0 for numbers."""

    def of_rows(y: Targets, predictions: Predictions, block: Blocks) -> Array:
        losses = loaded(metric.declared.row_losses)(*metric.turned(y, predictions, n_classes))
        total: Array = losses.sum() - np.bincount(block, losses)
        return total / (len(y) - np.bincount(block))

    def of_weights(y: Targets, predictions: Predictions, block: Blocks) -> Array:
        n_blocks, step = int(block.max()) + 1, max(1, _MOST_WEIGHTS // len(y))
        parts = []
        for first in range(0, n_blocks, step):
            kept = block != np.arange(first, min(first + step, n_blocks))[:, None]
            weights = kept / kept.sum(axis=1, keepdims=True)
            parts.append(weighted_losses(metric, y, predictions, n_classes, weights))
        return np.concatenate(parts)

    def of_parts(y: Targets, predictions: Predictions, block: Blocks) -> Array:
        parts = (np.flatnonzero(block != one) for one in range(int(block.max()) + 1))
        losses = (metric.loss(y[rows], predictions.take(rows), n_classes) for rows in parts)
        return np.fromiter(losses, np.float64)

    if metric.declared.row_losses:
        return of_rows
    return of_weights if metric.declared.bootstrap_losses else of_parts


def paired_comparison(
    metric: Metric,
    champion: Predictions,
    challenger: Predictions,
    y: Targets,
    groups: NDArray[Any] | None = None,
    *,
    n_classes: int,
    margin: float,
    level: float,
    rng: Generator,
    most_blocks: int = MOST_BLOCKS,
) -> PairedComparison:
    """Compare the predictions of two models for n rows.

    Args:
        metric: Metric of the loss.
        champion: Predictions of the model in use.
        challenger: Predictions of the model that may replace it.
        y: True classes by position, or numbers, shape (n,).
        groups: Groups of dependent rows, shape (n,), which share a block; None if there are none.
        n_classes: Number of classes, 0 for numbers.
        margin: Improvement that the challenger must exceed.
        level: Largest p-value that favours the challenger.
        rng: Deals rows into blocks, and draws permutations.
        most_blocks: Largest number of blocks.

    Raises:
        ValueError: If there are fewer than two blocks, or the metric is undefined on these rows, or
            without one of the blocks.
    """
    block = _blocks(len(y), groups, rng, most_blocks)
    n_blocks = int(block.max()) + 1 if len(block) else 0
    if n_blocks < 2:
        raise ValueError("all rows belong to one group, so the models cannot be compared")
    sizes, without = np.bincount(block), loss_without_blocks(metric, n_classes)
    old, new = (
        _Jackknife.of(metric.loss(y, one, n_classes), without(y, one, block), sizes)
        for one in (champion, challenger)
    )
    between = _Jackknife(old.whole - new.whole, old.pseudo_values - new.pseudo_values)
    p = _p_of_t(between.pseudo_values, margin)
    if p <= level:
        p = max(p, _p_of_sign_flips(between.pseudo_values - margin, level, rng))
    bounds = metric.declared.lower, metric.declared.upper
    return PairedComparison(
        old.estimate(*bounds), new.estimate(*bounds), between.estimate(), p, level, len(y), n_blocks
    )


@dataclass(frozen=True, slots=True)
class _Jackknife:
    """A statistic of all rows, and the pseudo-value of each block, shape (B,)."""

    whole: float
    pseudo_values: Array

    @classmethod
    def of(cls, whole: float, without: Array, sizes: NDArray[np.intp]) -> "_Jackknife":
        """Return the pseudo-values of a loss, given the losses without each block."""
        if not np.isfinite(without).all():
            raise ValueError("the metric is undefined without some of these rows")
        # Of a mean, this is the mean of the block, weighted by its size relative to other blocks.
        influence = len(sizes) * (1 - sizes / sizes.sum()) * (whole - without)
        return cls(whole, whole + influence)

    def estimate(self, lower: float = -inf, upper: float = inf) -> Estimate:
        """Return the estimate; its interval ends at the bounds of the metric."""
        n = len(self.pseudo_values)
        error = float(np.std(self.pseudo_values, ddof=1)) / sqrt(n)
        half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * error
        return Estimate(self.whole, max(self.whole - half, lower), min(self.whole + half, upper))


def _blocks(
    n_rows: int, groups: NDArray[Any] | None, rng: Generator, most: int
) -> NDArray[np.intp]:
    """Return the block of each row, shape (n,): blocks of about equal size, groups kept whole."""
    if groups is None:
        return rng.permutation(n_rows) % min(n_rows, most)
    _, unit = np.unique(groups, return_inverse=True)
    sizes = np.bincount(unit)
    n_blocks = min(len(sizes), most)
    order = rng.permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    rounds, place = np.divmod(np.arange(len(sizes)), n_blocks)
    dealt = np.empty(len(sizes), dtype=np.intp)
    # The largest groups go round the blocks, back and forth, so that sums of sizes are alike.
    dealt[order] = np.where(rounds % 2, n_blocks - 1 - place, place)
    return dealt[unit]


def _p_of_t(values: Array, margin: float) -> float:
    """Return the p-value of a one-sided t-test that the mean of values exceeds the margin."""
    n = len(values)
    error = float(np.std(values, ddof=1)) / sqrt(n)
    above = float(np.mean(values)) - margin
    if error <= _ROUNDING * max(abs(above), np.finfo(float).tiny):  # each block says the same
        return 0.0 if above > 0 else 1.0
    return float(stdtr(n - 1, -above / error))


def _p_of_sign_flips(values: Array, level: float, rng: Generator) -> float:
    """Return the share of random signs with a sum at least as large, including the actual signs."""
    n_flips = int(np.clip(ceil(_FLIPS_PER_LEVEL / level), _FEWEST_FLIPS, _MOST_FLIPS))
    total = float(values.sum())
    least = total - _ROUNDING * float(np.abs(values).sum())
    n_larger = 0
    for first in range(0, n_flips, _FLIPS_AT_ONCE):
        shape = min(_FLIPS_AT_ONCE, n_flips - first), ceil(len(values) / 8)
        bits = np.unpackbits(rng.integers(256, size=shape, dtype=np.uint8), axis=1)
        sums = 2 * (bits[:, : len(values)].astype(np.float64) @ values) - total
        n_larger += int(np.count_nonzero(sums >= least))
    return (1 + n_larger) / (1 + n_flips)
