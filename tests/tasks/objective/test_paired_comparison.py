"""The paired comparison, against independent implementations, and whether a model is useful."""

from itertools import count, islice

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest, ttest_rel

from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import make_split
from prefect_tune.tasks.objective.comparison import (
    LEVEL,
    PairedComparison,
    is_useless,
    level_of,
    over_folds,
    paired_comparison,
    usefulness,
)
from prefect_tune.tasks.objective.metric import Usefulness, metric_named
from prefect_tune.tasks.objective.predictions import Predictions
from prefect_tune.tasks.objective.risk import losses_of_draws


def compared(
    metric: str, old: Predictions, new: Predictions, y: NDArray, groups: NDArray | None = None,
    *, n_classes: int = 2, margin: float = 0.0, level: float = 0.02,
) -> PairedComparison:  # fmt: skip
    return paired_comparison(
        metric_named(metric), old, new, y, groups,
        n_classes=n_classes, margin=margin, level=level, rng=np.random.default_rng(0),
    )  # fmt: skip


def numbers(seed: int, n: int = 150) -> tuple[NDArray, Predictions, Predictions]:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=n)
    return y, Predictions(y + rng.normal(size=n)), Predictions(y + 0.7 * rng.normal(size=n))


def two_classes(n: int, n_lost: int, n_won: int) -> tuple[NDArray, Predictions, Predictions]:
    """Return n rows of two classes; the challenger makes `n_lost` errors and corrects `n_won`."""
    y = np.arange(n) % 2
    old, new = y.copy(), y.copy()
    new[:n_lost] = 1 - y[:n_lost]
    old[n_lost : n_lost + n_won] = 1 - y[n_lost : n_lost + n_won]
    return y, Predictions(old), Predictions(new)


@pytest.mark.parametrize("seed", range(3))
def test_comparison_of_single_rows_equals_the_paired_t_test(seed: int) -> None:
    y, old, new = numbers(seed)
    found = compared("neg_mean_squared_error", old, new, y, n_classes=0, level=1e-12)
    losses = (old.label - y) ** 2, (new.label - y) ** 2
    expected = ttest_rel(*losses, alternative="greater")
    assert found.p == pytest.approx(expected.pvalue, rel=1e-6)
    back = compared("neg_mean_squared_error", new, old, y, n_classes=0, level=1e-12)
    assert back.p == pytest.approx(1 - expected.pvalue, rel=1e-6)
    between = ttest_rel(*losses).confidence_interval(0.95)
    assert (found.difference.low, found.difference.high) == pytest.approx(tuple(between))
    assert [found.champion.value, found.challenger.value] == pytest.approx(np.mean(losses, axis=1))
    assert (found.n_rows, found.n_blocks) == (150, 150)


def test_groups_of_equal_size_count_as_one_observation_each() -> None:
    y, old, new = numbers(3, n=300)
    groups = np.repeat(np.arange(30), 10)
    found = compared("neg_mean_squared_error", old, new, y, groups, n_classes=0, level=1e-12)
    of_groups = (((m.label - y) ** 2).reshape(30, 10).mean(axis=1) for m in (old, new))
    assert found.p == pytest.approx(ttest_rel(*of_groups, alternative="greater").pvalue)
    assert found.n_blocks == 30


@pytest.mark.parametrize(("n_lost", "n_won"), [(0, 5), (3, 15), (10, 30)])
def test_p_value_of_errors_is_never_below_the_exact_sign_test(n_lost: int, n_won: int) -> None:
    y, old, new = two_classes(200, n_lost, n_won)
    found = compared("error", old, new, y)
    exact = binomtest(n_won, n_won + n_lost, alternative="greater").pvalue
    t = ttest_rel(*(1.0 * (m.label != y) for m in (old, new)), alternative="greater").pvalue
    error = np.sqrt(exact / 10_000)
    assert found.p == pytest.approx(max(exact, t), abs=4 * error + 1e-4)


def test_standard_error_of_auroc_agrees_with_delong() -> None:
    rng = np.random.default_rng(1)
    y = (rng.random(200) < 0.4).astype(np.int32)
    shared = rng.normal(size=200)
    scores = [quality * y + shared + rng.normal(size=200) for quality in (1.0, 1.6)]
    models = [Predictions((s > 0).astype(np.int32), np.column_stack([-s, s])) for s in scores]
    found = compared("auroc", *models, y)
    error = delong_error(y == 1, *scores)
    half = (found.difference.high - found.difference.low) / 2 / 1.972
    assert half == pytest.approx(error, rel=0.03)


def delong_error(is_positive: NDArray, first: NDArray, second: NDArray) -> float:
    """Return the standard error of a difference of AUROC (DeLong et al. 1988, by placements)."""
    by_model = []
    for score in (first, second):
        wins = np.sign(score[is_positive][:, None] - score[~is_positive][None, :]) / 2 + 0.5
        by_model.append((wins.mean(axis=1), wins.mean(axis=0)))
    positive, negative = (by_model[0][side] - by_model[1][side] for side in (0, 1))
    return float(np.sqrt(np.var(positive, ddof=1) / len(positive)
                         + np.var(negative, ddof=1) / len(negative)))  # fmt: skip


@pytest.mark.parametrize("metric", ["error", "auroc", "f1", "neg_log_loss", "average_precision"])
def test_losses_without_a_block_equal_losses_of_the_other_rows(metric: str) -> None:
    rng = np.random.default_rng(2)
    y = (rng.random(120) < 0.4).astype(np.int32)
    probability = np.clip(0.3 * y + 0.6 * rng.random(120), 0.01, 0.99)
    score = np.column_stack([1 - probability, probability])
    found = Predictions((probability > 0.5).astype(np.int32), score)
    block, judged = rng.permutation(120) % 7, metric_named(metric)
    without = losses_of_draws(judged, y, found, 2, block != np.arange(7)[:, None])
    parts = [np.flatnonzero(block != one) for one in range(7)]
    assert without == pytest.approx([judged.loss(y[r], found.take(r), 2) for r in parts])


def test_challenger_must_exceed_the_margin() -> None:
    y, old, new = two_classes(1_000, 5, 105)  # 10 points better
    assert compared("error", old, new, y, margin=7.0).is_better
    assert not compared("error", old, new, y, margin=9.5).is_better
    assert not compared("error", new, old, y).is_better
    same = compared("error", old, old, y)
    assert (same.p, same.difference.value, same.is_better) == (1.0, 0.0, False)


def test_undefined_comparison_is_an_error() -> None:
    score = np.column_stack([np.zeros(200), np.random.default_rng(0).random(200)])
    one = Predictions(np.zeros(200, dtype=np.int32), score)
    with pytest.raises(ValueError, match="nan"):
        compared("auroc", one, one, np.zeros(200, dtype=np.int32))
    with pytest.raises(ValueError, match="one group"):
        compared("auroc", one, one, np.arange(200) % 2, np.zeros(200, dtype=np.int64))


def test_significance_levels_of_all_runs_sum_to_the_level() -> None:
    levels = [*islice(map(level_of, count(1)), 100_000)]
    rest = LEVEL * 2 / np.sqrt(100_000.5) / 2.6124  # of the nights after, by an integral
    assert sum(levels) + rest == pytest.approx(LEVEL, rel=1e-6)
    assert np.all(np.diff(levels) < 0)


def judged(y: NDArray, score: NDArray, metric: str) -> Usefulness:
    """Judge scores of the second of two classes."""
    dataset = Dataset("t", "table", pd.DataFrame({"x": np.zeros(len(y))}), y, (0, 1))
    predictions = Predictions((score > 0.5).astype(np.int32), np.stack([1 - score, score], axis=1))
    split, rows = make_split(dataset, 3, 0.2, 0), np.arange(len(y))
    found = usefulness(dataset, split, metric_named(metric), rows, predictions)
    assert found is not None
    return found


@pytest.mark.slow
def test_random_models_are_rarely_called_useful_and_good_models_always() -> None:
    rng, n = np.random.default_rng(0), 200
    y = (np.arange(n) < 20).astype(np.int32)
    scores = [np.full(n, 0.1) + 0.01 * rng.uniform(size=n) for _ in range(60)]
    useful = [not is_useless(judged(y, score, "auroc"), None) for score in scores]
    assert sum(useful) <= 6  # 2.5 % of 60 is 1.5, and 6 is beyond three standard errors
    skilled = np.clip(0.08 + 0.25 * y * rng.uniform(size=n), 0, 1)
    assert not is_useless(judged(y, skilled, "auroc"), None)


def test_best_constant_is_the_reference_and_rare_rows_are_counted() -> None:
    y = (np.arange(50) < 5).astype(np.int32)
    found = judged(y, np.zeros(50), "error")
    assert (found.loss, found.constant_loss, found.gain) == (10.0, 10.0, 0.0)
    assert (found.n_rare, found.n_found) == (0, 0)  # a tenth of the rows is not rare
    assert judged(y, np.zeros(50), "f1").constant_loss == pytest.approx(1 - 10 / 55)
    y = (np.arange(100) < 8).astype(np.int32)
    found = judged(y, (np.arange(100) < 3).astype(float), "error")
    assert (found.n_rare, found.n_found) == (8, 3)


def usual(gain: float, p: float) -> Usefulness:
    return Usefulness(1 - gain, 1.0, gain, gain - 0.1, gain + 0.1, p)


def test_folds_are_averaged_and_selection_among_configurations_is_corrected() -> None:
    one, twenty = (over_folds([usual(0.1, 0.01), usual(0.0, 0.5)], n) for n in (1, 20))
    assert one is not None
    assert twenty is not None
    assert one.gain == pytest.approx(0.05)
    assert one.high - one.gain == pytest.approx(0.1 / np.sqrt(2))
    assert one.p == pytest.approx(0.0829, abs=1e-3)  # 1.386 standard errors
    assert twenty.p == 1.0
    assert over_folds([usual(0.1, 0.01), None], 1) is None
    assert over_folds([], 1) is None


@pytest.mark.parametrize(
    ("test", "held_out", "expected"),
    [
        (usual(0.1, 0.02), None, False),
        (usual(0.1, 0.02), usual(0.1, 0.5), True),
        (usual(0.1, 0.3), usual(0.1, 0.01), False),
        (usual(0.0, 0.5), usual(0.1, 0.0001), True),
        (None, usual(0.1, 0.02), False),
        (None, None, False),
    ],
)
def test_usefulness_may_be_shown_by_test_rows_or_held_out_rows(test, held_out, expected) -> None:
    assert is_useless(test, held_out) is expected
