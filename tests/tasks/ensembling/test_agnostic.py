"""The agnostic Bayes ensemble against the enumeration of all bootstraps."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from held_out_worlds import held_out_of, noisy_classes
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.tasks.ensembling.choosing import MOST_MEMBERS, agnostic_weights, bootstraps_for
from prefect_tune.tasks.ensembling.held_out import HeldOut
from prefect_tune.tasks.objective.metric import Predictions, metric_named
from prefect_tune.tasks.objective.risk import Resampling

WRONG = np.array([[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 1, 1]])
"""Which of four rows each of three models gets wrong (the sheet, 5.1)."""
MANY = 20_000
Y = np.array([0, 1, 0, 1])


def weights_of(held_out: HeldOut, n: int = MANY, share: float = 1.0, seed: int = 0) -> np.ndarray:
    return agnostic_weights(held_out, Bootstraps(n, share), np.random.default_rng(seed))


def enumerated(
    loss: Callable[[int, tuple[int, ...]], float], n_models: int, draws: list[tuple[int, ...]]
) -> np.ndarray:
    """How often each model is the best of all, each bootstrap once."""
    found = np.zeros(n_models)
    for drawn in draws:
        losses = np.array([loss(model, drawn) for model in range(n_models)])
        is_best = losses <= losses.min() + 1e-12
        found += is_best / is_best.sum()
    return found / len(draws)


@pytest.mark.parametrize(
    ("share", "expected"),
    [(1.0, [0.191406, 0.617188, 0.191406]), (0.5, [0.229167, 0.541667, 0.229167])],
)
def test_weights_are_those_of_all_resamples(share: float, expected: list[float]) -> None:
    """The sheet, 5.2; 20,000 bootstraps lie within 0.005, four standard errors or more."""
    draws = list(product(range(4), repeat=round(4 * share)))
    exact = enumerated(lambda m, drawn: sum(WRONG[m, i] for i in drawn), 3, draws)
    assert exact == pytest.approx(expected, abs=1e-6)
    weights = weights_of(held_out_of(Y, np.where(WRONG, 1 - Y, Y), "error"), share=share)
    assert weights == pytest.approx(exact, abs=0.005)


def test_folds_count_alike_in_each_bootstrap() -> None:
    fold = np.array([0, 0, 0, 1])  # drawn within the fold: the last row is in all bootstraps
    draws = [(*drawn, 3) for drawn in product(range(3), repeat=3)]
    exact = enumerated(
        lambda m, d: np.mean([WRONG[m, i] for i in d[:3]]) + WRONG[m, d[3]], 3, draws
    )
    weights = weights_of(held_out_of(Y, np.where(WRONG, 1 - Y, Y), "error", fold=fold))
    assert weights == pytest.approx(exact, abs=0.005)
    alike = enumerated(lambda m, drawn: sum(WRONG[m, i] for i in drawn), 3, draws)
    assert np.abs(alike - exact).max() > 0.1  # were each row to count alike


def test_areas_are_resampled_within_the_classes() -> None:
    y = np.array([0, 0, 0, 1, 1])
    scores = np.array(
        [[0.1, 0.6, 0.4, 0.5, 0.7], [0.3, 0.2, 0.8, 0.6, 0.9], [0.1, 0.2, 0.3, 0.2, 0.8]]
    )
    draws = [(*a, *b) for a in product(range(3), repeat=3) for b in product((3, 4), repeat=2)]
    exact = enumerated(lambda m, d: -roc_auc_score(y[list(d)], scores[m, list(d)]), 3, draws)
    weights = weights_of(held_out_of(y, np.stack([1 - scores, scores], axis=2), "auroc"))
    assert weights == pytest.approx(exact, abs=0.015)
    assert exact.min() > 0.05


@given(st.integers(0, 1000), st.floats(0.1, 10), st.floats(-10, 10))
def test_the_unit_of_the_target_changes_nothing(seed: int, slope: float, shift: float) -> None:
    y, errors = np.arange(12.0), np.random.default_rng(seed).normal(size=(4, 12))
    before = held_out_of(y, y + errors, "neg_mean_squared_error")
    after = held_out_of(slope * y + shift, slope * (y + errors) + shift, "neg_mean_squared_error")
    assert weights_of(after, 50) == pytest.approx(weights_of(before, 50))


def test_the_order_of_the_rows_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    y, score = np.arange(30) % 2, rng.random(30)
    counts, order = rng.integers(0, 3, (50, 30)).astype(np.uint16), rng.permutation(30)
    risks = [
        Resampling(metric_named("auroc"), 2, (y[rows],), (counts[:, rows],)).risks(
            [Predictions(y[rows], np.stack([1 - score, score], axis=1)[rows])]
        )
        for rows in (np.arange(30), order)
    ]
    np.testing.assert_allclose(*risks)


@given(st.integers(0, 1000))
def test_a_twin_halves_the_weight_and_changes_no_prediction(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=20)
    predicted = y + rng.normal(size=(5, 20))
    alone = held_out_of(y, predicted, "r2")
    twins = held_out_of(y, np.vstack([predicted[:1], predicted]), "r2")
    weights, with_twin = weights_of(alone, 100), weights_of(twins, 100)
    assert with_twin[:2] == pytest.approx([weights[0] / 2] * 2)
    assert with_twin[2:] == pytest.approx(weights[1:])
    blended = alone.blended(weights)[0].label
    np.testing.assert_allclose(twins.blended(with_twin)[0].label, blended)


def test_without_draws_the_best_model_has_all_weight() -> None:
    y, predicted = noisy_classes(20, 101, 0.7, np.random.default_rng(0))
    held_out = held_out_of(y, predicted, "error")
    assert weights_of(held_out, 500, 0.0).argmax() == held_out.losses.argmin()
    assert weights_of(held_out, 500, 0.0).max() == 1.0


def test_few_members_are_kept_and_weigh_1() -> None:
    y, predicted = noisy_classes(200, 40, 0.7, np.random.default_rng(0))
    weights = weights_of(held_out_of(y, predicted, "error"), 500, 0.5)
    assert np.count_nonzero(weights) == MOST_MEMBERS
    assert weights.sum() == pytest.approx(1)


def test_copies_of_the_best_model_are_not_crowded_out() -> None:
    """A search comes back to its best model; each of its copies is light."""
    y, predicted = noisy_classes(40, 200, 0.7, np.random.default_rng(0))
    best = np.where(np.arange(len(y)) % 5, y, 1 - y)
    alone = weights_of(held_out_of(y, np.vstack([predicted, best]), "error"), 500, 0.5)[-1]
    copies = held_out_of(y, np.vstack([predicted, np.tile(best, (90, 1))]), "error")
    assert weights_of(copies, 500, 0.5)[len(predicted) :].sum() == pytest.approx(alone, abs=0.15)
    assert 0.2 < alone < 0.8


def test_fewer_bootstraps_are_drawn_where_each_takes_a_loop() -> None:
    assert bootstraps_for(metric_named("error")).n == 500
    assert bootstraps_for(metric_named("average_precision")).n < 500
