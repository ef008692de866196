"""Paired comparison of two models, on rows not used to train or select either model.

Jackknife pseudo-values (Efron and Stein 1981) work with any metric: rows, or whole groups of rows,
are divided into blocks, and the pseudo-value of a block is the block's effect on the difference of
the losses. A one-sided t-test and a sign-flip permutation test on the pseudo-values must both favor
the challenger. For error counts of single rows, the permutation test is McNemar's exact sign test.
In a series of runs, decision k since the last promotion is made at level 0.05 k^-1.5 / zeta(1.5).
The levels sum to 0.05. By the union bound, a champion that is as good as all its challengers is
therefore replaced by chance in at most 5% of all series, regardless of the dependence between runs.

A model is useful if it is better than the best constant prediction on the same rows. Two tests
decide: one on the test rows, and one on the held-out rows of the folds. The second test has more
rows, but the trial was chosen on these rows, so the p-value is multiplied by the number of
configurations (Bonferroni). Each test is made at half of the one-sided 2.5% level.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, sqrt
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit, zeta
from scipy.stats import permutation_test, ttest_1samp

from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import Split
from prefect_tune.tasks.objective.metric import Metric, Usefulness
from prefect_tune.tasks.objective.predictions import Array, Predictions
from prefect_tune.tasks.objective.risk import Targets, losses_of_draws

LEVEL = 0.05
"""Probability of at least one false promotion in all runs after a promotion."""
CONFIDENCE = 0.95
"""Confidence of the intervals."""
LEAST_ROWS = 200
"""Minimum number of fresh rows for comparing models."""
_MOST_BLOCKS, _FEW_BLOCKS = 200, 20
_BLOCK_ROWS = 2_000_000
"""Maximum product of rows and blocks, because each block takes a pass over the rows."""
USELESS_LEVEL = 0.025
"""Probability that a model without any skill is called useful."""
RARE_SHARE = 0.1
"""Share of the training rows below which a class is rare."""
_DECAY = 1.5
"""Exponent of the levels; values closer to 1 give more power to later runs and less to the first
run."""
_FEWEST_FLIPS, _MOST_FLIPS = 10_000, 400_000
_FLIPS_PER_LEVEL = 40
"""Number of permutations as a multiple of 1 / level, so that the smallest p-value is far below the
level."""
_FLIPS_AT_ONCE = 1_000
_NORMAL = 1.96
"""Half of a 95% interval, in standard errors."""
_ROUNDING = 1e-9
"""Relative tolerance at which two sums of pseudo-values count as equal."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate with its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Losses of two models on the same rows.

    Attributes:
        difference: Loss of the champion minus loss of the challenger.
        p: Larger of two tests' p-values for the hypothesis that the difference is at most the
            margin. The permutation test is skipped if the t-test favors the champion.
        level: Significance level of this decision.
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
    """Return the significance level of a decision, counted from 1 after each promotion."""
    return LEVEL * decision**-_DECAY / float(zeta(_DECAY))


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
    most_blocks: int = _MOST_BLOCKS,
) -> PairedComparison:
    """Compare the predictions of two models for n rows.

    Args:
        metric: Metric of the loss.
        champion: Predictions of the current model.
        challenger: Predictions of the model that may replace the champion.
        y: True class positions or true numbers, shape (n,).
        groups: Groups of dependent rows, shape (n,), or None; each group is in one block.
        n_classes: Number of classes, 0 for regression.
        margin: Improvement in loss that the challenger must exceed.
        level: Largest p-value that favors the challenger.
        rng: Random generator for dividing rows into blocks and drawing permutations.
        most_blocks: Largest number of blocks.

    Raises:
        ValueError: If there are fewer than two blocks, or if the metric is undefined on all rows or
            without one of the blocks.
    """
    unit = np.arange(len(y)) if groups is None else np.unique(groups, return_inverse=True)[1]
    n_units = int(unit.max(initial=-1)) + 1
    if n_units < 2:
        raise ValueError("all rows belong to one group, so the models cannot be compared")
    block = (rng.permutation(n_units) % min(n_units, most_blocks))[unit]
    sizes = np.bincount(block)
    n_blocks = len(sizes)
    is_kept = block != np.arange(n_blocks)[:, None]

    def jackknife(predictions: Predictions) -> tuple[float, Array]:
        """Return the loss, and the pseudo-value of each block, shape (B,)."""
        whole = metric.loss(y, predictions, n_classes)
        without = losses_of_draws(metric, y, predictions, n_classes, is_kept)
        if not np.isfinite(without).all():
            raise ValueError("the metric is undefined without some of these rows")
        # If the metric is a mean, the pseudo-value is the block's mean, weighted by relative size.
        return whole, whole + n_blocks * (1 - sizes / sizes.sum()) * (whole - without)

    (old, old_values), (new, new_values) = jackknife(champion), jackknife(challenger)
    values = old_values - new_values
    p = _p_of_t(values, margin)
    if p <= level:
        p = max(p, _p_of_sign_flips(values - margin, level, rng))
    bounds = metric.declared.lower, metric.declared.upper
    return PairedComparison(
        _estimate(old, old_values, *bounds), _estimate(new, new_values, *bounds),
        _estimate(old - new, values), p, level, len(y), n_blocks,
    )  # fmt: skip


def _estimate(
    whole: float, pseudo_values: Array, lower: float = -inf, upper: float = inf
) -> Estimate:
    """Return an estimate; the interval is clipped at the bounds of the metric."""
    n = len(pseudo_values)
    error = float(np.std(pseudo_values, ddof=1)) / sqrt(n)
    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * error
    return Estimate(whole, max(whole - half, lower), min(whole + half, upper))


def _p_of_t(values: Array, margin: float) -> float:
    """Return the p-value of a one-sided t-test that the mean of values exceeds the margin."""
    above = float(np.mean(values)) - margin
    if np.std(values) <= _ROUNDING * max(abs(above), np.finfo(float).tiny):  # all values are equal
        return 0.0 if above > 0 else 1.0
    return float(ttest_1samp(values, margin, alternative="greater").pvalue)


def _p_of_sign_flips(values: Array, level: float, rng: Generator) -> float:
    """Return the p-value of a sign-flip test: the share of flips with at least the actual mean."""
    n_flips = int(np.clip(ceil(_FLIPS_PER_LEVEL / level), _FEWEST_FLIPS, _MOST_FLIPS))
    found = permutation_test(
        (values,),
        np.mean,
        permutation_type="samples",
        alternative="greater",
        n_resamples=n_flips,
        batch=_FLIPS_AT_ONCE,
        rng=rng,
    )
    return float(found.pvalue)


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
    """Compare predictions for rows, shape (n,), with the best constant; None if undefined."""
    y, n_classes, rare = dataset.y[rows], len(dataset.classes), rare_class(dataset, split)
    affordable = _BLOCK_ROWS // max(len(y), 1) if metric.declared.is_quick else 0
    most_blocks = min(max(affordable, _FEW_BLOCKS), _MOST_BLOCKS)
    try:
        compared = paired_comparison(
            metric,
            metric.best_guess(y, n_classes),
            predictions,
            y,
            None if dataset.groups is None else dataset.groups[rows],
            n_classes=n_classes,
            margin=0.0,
            level=USELESS_LEVEL / 2,
            rng=np.random.default_rng(split.seed),
            most_blocks=most_blocks,
        )
    except ValueError:  # the metric is undefined on the rows
        return None
    is_rare = np.zeros(len(y), dtype=bool) if rare is None else y == rare
    gain = compared.difference
    return Usefulness(
        compared.challenger.value, compared.champion.value, gain.value, gain.low, gain.high,
        compared.p, int(is_rare.sum()), int((predictions.label[is_rare] == rare).sum()),
    )  # fmt: skip


def over_folds(folds: Sequence[Usefulness | None], n_configurations: int) -> Usefulness | None:
    """Average usefulness over folds, for the best of `n_configurations`; None if undefined."""
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

    A model no better than the constant prediction on the test rows always counts as useless.
    """
    known = [one for one in (test, held_out) if one is not None]
    if not known:
        return False
    return known[0].gain <= 0 or all(one.p > USELESS_LEVEL / len(known) for one in known)
