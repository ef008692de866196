"""AUROC with its interval, and calibration, against scikit-learn and a plain loop."""

import numpy as np
import pytest
from scipy.stats import rankdata
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, roc_auc_score

from prefect_tune.tasks.final import figures
from prefect_tune.tasks.final.figures import auroc_with_interval, calibration


def clustered(n_groups: int, n_rows: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Rows of groups that have their class and most of their score in common, with ties."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(n_groups), n_rows)
    y = rng.random(n_groups)[group] < 0.3
    score = y * 0.8 + rng.normal(size=n_groups)[group] + 0.1 * rng.normal(size=len(y))
    return y, score.round(1), 7 * group


def looped(y, score, group, n_draws: int, seed: int) -> list[float]:
    """The interval of a plain loop over bootstraps of groups."""
    rng, groups, areas = np.random.default_rng(seed), np.unique(group), []
    members = {g: np.flatnonzero(group == g) for g in groups}
    for _ in range(n_draws):
        rows = np.concatenate([members[g] for g in rng.choice(groups, size=len(groups))])
        if 0 < y[rows].sum() < len(rows):
            n, ranks = y[rows].sum(), rankdata(score[rows])
            areas.append((ranks[y[rows]].sum() - n * (n + 1) / 2) / n / (len(rows) - n))
    return np.percentile(areas, [2.5, 97.5]).tolist()


def test_the_interval_equals_a_plain_loop_over_groups(monkeypatch) -> None:
    monkeypatch.setattr(figures, "_DRAWS", 4_000)
    y, score, group = clustered(40, 4)
    found = auroc_with_interval(y, score, group, seed=1)
    assert found.value == pytest.approx(roc_auc_score(y, score))
    assert (found.n_draws, found.n_units) == (4_000, 40)
    assert [found.low, found.high] == pytest.approx(looped(y, score, group, 1_000, 2), abs=0.02)
    of_rows = auroc_with_interval(y, score, None, seed=1)
    by_row = looped(y, score, np.arange(len(y)), 1_000, 2)
    assert [of_rows.low, of_rows.high] == pytest.approx(by_row, abs=0.02)
    assert found.high - found.low > 1.5 * (of_rows.high - of_rows.low)
    monkeypatch.setattr(figures, "MOST_WEIGHTS", 10_000)  # in parts
    assert found == auroc_with_interval(y, score, group, seed=1)


@pytest.mark.parametrize("group", [[0, 0, 1, 2], [0, 1, 2, 2], [0, 0, 0, 0]])
def test_a_class_of_one_patient_has_an_area_without_interval(group) -> None:
    y, score = np.array([True, True, False, False]), np.array([0.2, 0.4, 0.1, 0.3])
    found = auroc_with_interval(y, score, np.array(group), 0)
    assert (found.value, found.low, found.high, found.n_draws) == (0.75, None, None, 0)
    assert auroc_with_interval(y, score, None, 0).low is not None
    assert auroc_with_interval(y | True, score, None, 0) is None


def test_calibration_equals_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    probability = np.concatenate([rng.beta(1, 6, size=900), np.full(100, 0.1)])
    y = rng.random(1_000) < probability**0.8
    found = calibration(y, probability)
    observed, predicted = calibration_curve(y, probability, n_bins=10, strategy="quantile")
    assert [b.observed for b in found.bins] == pytest.approx(observed)
    assert [b.predicted for b in found.bins] == pytest.approx(predicted)
    sizes = np.array([b.n for b in found.bins])
    assert sizes.sum() == 1_000
    assert all(b.low <= b.observed <= b.high for b in found.bins)
    assert found.expected_error == pytest.approx(sizes @ abs(observed - predicted) / 1_000)
    assert found.brier == pytest.approx(brier_score_loss(y, probability))
    assert found.brier_of_share == pytest.approx(brier_score_loss(y, np.full(1_000, y.mean())))


def test_few_rows_have_few_bins_and_one_probability_has_one() -> None:
    y = np.arange(50) % 2 == 0
    assert len(calibration(y, np.linspace(0, 1, 50)).bins) == 2
    assert [b.n for b in calibration(y, np.full(50, 0.3)).bins] == [50]
