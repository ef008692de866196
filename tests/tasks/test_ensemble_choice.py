"""The choice of members and of the kind of an ensemble."""

from collections import Counter
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from held_out_worlds import held_out_of, noisy_classes
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.tasks.final.ensemble import (
    KINDS,
    FitLimit,
    HeldOut,
    agnostic_weights,
    best_kind,
    blend,
    choose,
    greedy_picks,
    member_output,
    nested_losses,
    predict_held_out,
    stratified_parts,
)
from prefect_tune.tasks.objective.predictions import Predictions

BOOTSTRAPS = Bootstraps(200, 0.5)


def chosen(kind, held_out: HeldOut, size: int = 32):
    return choose(kind, held_out, size, BOOTSTRAPS, np.random.default_rng(0))


def voters(n: int = 20, skill: float = 0.7) -> HeldOut:
    y, predicted = noisy_classes(n, 90, skill, np.random.default_rng(0))
    return held_out_of(y, predicted, "error", fold=np.arange(90) % 3)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_losses_match_its_predictions(kind) -> None:
    held_out = voters()
    choice = chosen(kind, held_out)
    assert choice.kind == kind
    assert sum(choice.weights.values()) == pytest.approx(1)
    predicted = predict_held_out(choice, held_out)
    assert held_out.fold_losses(predicted).mean() == pytest.approx(choice.losses[-1])
    labels = np.array([np.concatenate([p.label for p in of]) for of in held_out.predictions])
    y = held_out.dataset.y[np.concatenate(held_out.rows)]
    weights = np.array([choice.weights.get(i, 0) for i in range(len(held_out))])
    assert (weights @ labels > 0.5).astype(int).tolist() == np.concatenate(
        [p.label for p in predicted]
    ).tolist()
    assert 100 * np.mean((weights @ labels > 0.5) != y) == pytest.approx(choice.losses[-1])


def test_greedy_selection_that_is_no_better_ends_in_the_best_alone() -> None:
    y = np.arange(30) % 2
    held_out = held_out_of(y, np.stack([1 - y, np.zeros(30, dtype=int), y]), "error")
    assert (chosen("greedy", held_out).kind, chosen("greedy", held_out).weights) == (
        "single", {2: 1.0},
    )  # fmt: skip
    assert chosen("agnostic", held_out).kind == "agnostic"  # whatever its loss


@pytest.mark.parametrize("kind", ["greedy", "agnostic"])
def test_members_fit_within_the_limit(kind) -> None:
    held_out = voters()
    rng = np.random.default_rng(0)
    seconds = np.random.default_rng(1).uniform(0.5, 2.0, len(held_out))
    limit = FitLimit(seconds, 4.0)
    choice = choose(kind, held_out, 32, BOOTSTRAPS, rng, limit=limit)
    free = chosen(kind, held_out)
    assert seconds[list(free.weights)].sum() > 4.0 >= seconds[list(choice.weights)].sum()
    assert sum(choice.weights.values()) == pytest.approx(1)
    predicted = predict_held_out(choice, held_out)
    assert held_out.fold_losses(predicted).mean() == pytest.approx(choice.losses[-1])


def test_a_single_model_is_judged_by_its_own_scores() -> None:
    y = np.array([0, 0, 1, 1, 0, 1])
    values = np.array([[-3.0, -2.5, -1.0, 0.5, -2.0, 2.0]])  # no probabilities; all in order
    held_out = held_out_of(y, np.stack([-values, values], axis=2), "auroc")
    choice = chosen("single", held_out)
    assert choice.losses == (0.0,)
    assert held_out.fold_losses(predict_held_out(choice, held_out)).tolist() == [0.0]
    assert held_out.fold_losses(held_out.blended(np.ones(1)))[0] > 0  # by votes


def test_rows_that_are_left_out_play_no_part() -> None:
    held_out = voters()
    is_kept = np.random.default_rng(1).random(90) < 0.6
    part = held_out.within(is_kept)
    assert np.concatenate(part.rows).size == is_kept.sum()
    for kept, rows in zip(part.rows, held_out.rows, strict=True):
        assert kept.tolist() == rows[is_kept[rows]].tolist()
    y = held_out.dataset.y
    first = zip(part.rows, part.predictions[0], strict=True)
    errors = [100 * np.mean(predicted.label != y[rows]) for rows, predicted in first]
    assert part.losses[0] == pytest.approx(np.mean(errors))
    assert part.losses[0] != held_out.losses[0]


WRONG = np.array([[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 1, 1]])
"""Which of four rows each of three models gets wrong (the sheet, 5.1)."""
MANY = 20_000
CLASSES_OF_ROWS = np.array([0, 1, 0, 1])


def agnostic_weights_of(
    held_out: HeldOut, n: int = MANY, share: float = 1.0, seed: int = 0
) -> np.ndarray:
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "expected"),
    [(1.0, [0.191406, 0.617188, 0.191406]), (0.5, [0.229167, 0.541667, 0.229167])],
)
def test_weights_count_all_resamples(share: float, expected: list[float]) -> None:
    """The sheet, 5.2; 20,000 bootstraps lie within 0.005, four standard errors or more."""
    draws = list(product(range(4), repeat=round(4 * share)))
    exact = enumerated(lambda m, drawn: sum(WRONG[m, i] for i in drawn), 3, draws)
    assert exact == pytest.approx(expected, abs=1e-6)
    weights = agnostic_weights_of(
        held_out_of(
            CLASSES_OF_ROWS, np.where(WRONG, 1 - CLASSES_OF_ROWS, CLASSES_OF_ROWS), "error"
        ),
        share=share,
    )
    assert weights == pytest.approx(exact, abs=0.005)


@pytest.mark.slow
def test_folds_count_alike_in_each_bootstrap() -> None:
    fold = np.array([0, 0, 0, 1])  # drawn within the fold: the last row is in all bootstraps
    draws = [(*drawn, 3) for drawn in product(range(3), repeat=3)]
    exact = enumerated(
        lambda m, d: np.mean([WRONG[m, i] for i in d[:3]]) + WRONG[m, d[3]], 3, draws
    )
    weights = agnostic_weights_of(
        held_out_of(
            CLASSES_OF_ROWS,
            np.where(WRONG, 1 - CLASSES_OF_ROWS, CLASSES_OF_ROWS),
            "error",
            fold=fold,
        )
    )
    assert weights == pytest.approx(exact, abs=0.005)
    alike = enumerated(lambda m, drawn: sum(WRONG[m, i] for i in drawn), 3, draws)
    assert np.abs(alike - exact).max() > 0.1  # were each row to count alike


@pytest.mark.slow
def test_areas_are_resampled_within_the_classes() -> None:
    y = np.array([0, 0, 0, 1, 1])
    scores = np.array(
        [[0.1, 0.6, 0.4, 0.5, 0.7], [0.3, 0.2, 0.8, 0.6, 0.9], [0.1, 0.2, 0.3, 0.2, 0.8]]
    )
    draws = [(*a, *b) for a in product(range(3), repeat=3) for b in product((3, 4), repeat=2)]
    exact = enumerated(lambda m, d: -roc_auc_score(y[list(d)], scores[m, list(d)]), 3, draws)
    weights = agnostic_weights_of(held_out_of(y, np.stack([1 - scores, scores], axis=2), "auroc"))
    assert weights == pytest.approx(exact, abs=0.015)
    assert exact.min() > 0.05


@pytest.mark.slow
@given(st.integers(0, 1000), st.floats(0.1, 10), st.floats(-10, 10))
def test_the_unit_of_the_target_changes_nothing(seed: int, slope: float, shift: float) -> None:
    y, errors = np.arange(12.0), np.random.default_rng(seed).normal(size=(4, 12))
    before = held_out_of(y, y + errors, "neg_mean_squared_error")
    after = held_out_of(slope * y + shift, slope * (y + errors) + shift, "neg_mean_squared_error")
    assert agnostic_weights_of(after, 50) == pytest.approx(agnostic_weights_of(before, 50))


@pytest.mark.slow
@given(st.integers(0, 1000))
def test_a_twin_halves_the_weight_and_changes_no_prediction(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=20)
    predicted = y + rng.normal(size=(5, 20))
    alone = held_out_of(y, predicted, "r2")
    twins = held_out_of(y, np.vstack([predicted[:1], predicted]), "r2")
    weights, with_twin = agnostic_weights_of(alone, 100), agnostic_weights_of(twins, 100)
    assert with_twin[:2] == pytest.approx([weights[0] / 2] * 2)
    assert with_twin[2:] == pytest.approx(weights[1:])
    blended = alone.blended(weights)[0].label
    np.testing.assert_allclose(twins.blended(with_twin)[0].label, blended)


def test_copies_of_the_best_model_are_not_crowded_out() -> None:
    """A search comes back to its best model; each of its copies is light."""
    y, predicted = noisy_classes(40, 200, 0.7, np.random.default_rng(0))
    best = np.where(np.arange(len(y)) % 5, y, 1 - y)
    alone = agnostic_weights_of(held_out_of(y, np.vstack([predicted, best]), "error"), 500, 0.5)[-1]
    copies = held_out_of(y, np.vstack([predicted, np.tile(best, (90, 1))]), "error")
    assert agnostic_weights_of(copies, 500, 0.5)[len(predicted) :].sum() == pytest.approx(
        alone, abs=0.15
    )
    assert 0.2 < alone < 0.8


def test_models_without_probabilities_vote() -> None:
    label = np.array([0, 1, 1], dtype=np.int32)
    votes = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    decision = np.array([[1.5, -1.5], [-0.2, 0.2], [-3.0, 3.0]])
    assert (member_output(Predictions(label), 2) == votes).all()
    assert (member_output(Predictions(label, decision), 2) == votes).all()
    chances = np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]])
    assert (member_output(Predictions(label, chances), 2) == chances).all()
    assert (blend(chances, 2).label == label).all()


def test_of_classes_with_equal_weight_the_lowest_is_predicted() -> None:
    mean = np.array([[0.3, 0.1 + 0.2, 0.0], [0.2, 0.3, 0.1 + 0.2]])
    assert (mean.argmax(axis=1) == [1, 2]).all()  # what plain arithmetic would say
    assert blend(mean, 3).label.tolist() == [0, 1]


def test_a_member_is_fitted_once_however_often_it_is_picked() -> None:
    limit = FitLimit(np.array([2.0, 1.0, 1.5]), 3.2)
    assert [limit.allows([0, 0, 0], i) for i in range(3)] == [True, True, False]
    assert [limit.allows([0, 1], i) for i in range(3)] == [True, True, False]


Y = np.array([1.0, 0.0, 1.0, 0.0])


def brier(mean: np.ndarray) -> float:
    return float(np.mean((mean[:, 0] - Y) ** 2))


def test_the_worked_example_of_the_sheet() -> None:
    p1, p2, p3 = [0.9, 0.2, 0.6, 0.4], [0.4, 0.1, 0.9, 0.6], [0.7, 0.6, 0.8, 0.2]
    members = [np.array(p)[:, None] for p in (p1, p2, p3)]
    picks, losses = greedy_picks(members, brier, 5)
    assert picks == [0, 0, 2, 0, 0]
    assert losses == pytest.approx([0.0925, 0.0925, 0.090278, 0.089375, 0.0893], abs=1e-6)


def test_what_would_take_too_long_to_fit_is_not_picked_and_the_next_best_is() -> None:
    members = [
        np.array(p)[:, None]
        for p in ([0.8, 0.2, 0.2, 0.2], [0.7, 0.1, 1.0, 0.3], [0.8, 0.4, 0.9, 0.2])
    ]
    seconds = np.array([1.0, 2.5, 1.5])
    free, _ = greedy_picks(members, brier, 2)
    limited, _ = greedy_picks(members, brier, 2, FitLimit(seconds, 3.0))
    alone, _ = greedy_picks(members, brier, 2, FitLimit(seconds, 0.5))
    assert (free, limited, set(alone)) == ([0, 1], [0, 2], {0})


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 12))
def test_each_pick_is_the_best_of_all_at_its_place(seed: int, n: int, size: int) -> None:
    members = list(np.random.default_rng(seed).random((n, 4, 1)))
    members.sort(key=brier)
    picks, losses = greedy_picks(members, brier, size)
    assert 1 <= len(picks) == len(losses) <= size
    assert losses[-1] == min(losses)
    for k in range(1, len(picks)):
        before = [members[i] for i in picks[:k]]
        best = min(brier(np.mean([*before, m], axis=0)) for m in members)
        assert losses[k] == pytest.approx(best)


FEW_BOOTSTRAPS = Bootstraps(100, 0.5)


def estimated(held_out: HeldOut, size: int = 32, seed: int = 0) -> dict[str, float]:
    sequence = np.random.SeedSequence(seed)
    return dict(nested_losses(held_out, size, FEW_BOOTSTRAPS, sequence))


def with_one_that_is_right() -> tuple[HeldOut, int]:
    y, predicted = noisy_classes(30, 120, 0.7, np.random.default_rng(1))
    return held_out_of(y, np.vstack([predicted, y]), "error", fold=np.arange(120) % 3), 32


def with_two_whose_errors_cancel() -> tuple[HeldOut, int]:
    """In shares that no count of bootstraps would find: the first is always the better one."""
    rng = np.random.default_rng(2)
    y, error = rng.normal(size=(2, 120))
    predicted = np.stack([y + error, y - 3 * error, *(y + 4 * rng.normal(size=(20, 120)))])
    return held_out_of(y, predicted, "r2", fold=np.arange(120) % 3), 32


def with_many_that_are_alike() -> tuple[HeldOut, int]:
    rng = np.random.default_rng(3)
    y = rng.normal(size=120)
    return held_out_of(y, y + rng.normal(size=(60, 120)), "r2", fold=np.arange(120) % 3), 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "best"),
    [
        (with_one_that_is_right, "single"),
        (with_two_whose_errors_cancel, "greedy"),
        (with_many_that_are_alike, "agnostic"),
    ],
)
def test_the_kind_that_is_best_is_chosen(world, best) -> None:
    for seed in range(3):
        assert best_kind(estimated(*world(), seed)) == best


def test_of_equals_the_simplest_is_chosen() -> None:
    assert best_kind({"single": 0.3, "greedy": 0.1 + 0.2, "agnostic": 0.3}) == "single"
    assert best_kind({"single": 0.1 + 0.2, "greedy": 0.3, "agnostic": 0.3}) == "single"


@pytest.mark.full
@pytest.mark.slow
def test_choosing_among_noise_flatters_nobody() -> None:
    """The mean of 12 estimates has a standard error of 50/sqrt(12*150) = 1.2 percent."""
    nested, on_own_rows = [], []
    for seed in range(12):
        y, predicted = noisy_classes(60, 150, 0.5, np.random.default_rng(seed))
        held_out = held_out_of(y, predicted, "error", fold=np.arange(150) % 3)
        nested.append([*(losses := estimated(held_out, seed=seed)).values(), min(losses.values())])
        rng = np.random.default_rng(0)
        choices = [choose(kind, held_out, 32, FEW_BOOTSTRAPS, rng) for kind in KINDS]
        on_own_rows.append([choice.losses[-1] for choice in choices])
    assert np.abs(np.mean(nested, axis=0) - 50).max() < 5
    assert (np.mean(on_own_rows, axis=0) < 42).all()  # what judging on the same rows would say


@pytest.mark.slow
def test_a_part_without_a_class_counts_for_no_kind() -> None:
    rng = np.random.default_rng(0)
    y, fold = np.zeros(90, dtype=int), np.arange(90) % 3
    y[:9] = 1  # three in each fold, so that two of its five parts have none
    score = np.clip(0.5 + 0.1 * y + 0.2 * rng.normal(size=(10, 90)), 0, 1)
    held_out = held_out_of(y, np.stack([1 - score, score], axis=2), "auroc", fold=fold)
    assert set(estimated(held_out)) == set(KINDS)
    assert all(0 <= loss <= 1 for loss in estimated(held_out).values())


@given(st.integers(0, 99), st.integers(3, 60), st.integers(1, 4), st.integers(2, 5))
def test_rows_are_dealt_alike_within_folds_and_classes(seed, m, n_folds, n_parts) -> None:
    rng = np.random.default_rng(seed)
    y, fold = rng.permutation(np.arange(m) % 3), rng.integers(-1, n_folds, m)
    held_out = held_out_of(y, np.tile(y, (1, 1)), "error", fold=fold)
    parts = stratified_parts(held_out, n_parts, rng)
    assert ((parts == -1) == (fold == -1)).all()
    for k in range(n_folds):
        for rows in (fold == k, *((fold == k) & (y == c) for c in range(3))):
            counts = np.bincount(parts[rows], minlength=n_parts)
            assert counts.max() - counts.min() <= 1


@given(st.integers(0, 99))
def test_rows_of_one_group_are_dealt_together(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(20), 3)
    held_out = held_out_of(
        groups % 2, np.tile(groups % 2, (1, 1)), "error", fold=groups % 2, groups=groups
    )
    parts = stratified_parts(held_out, 5, rng)
    assert all(len(set(parts[groups == g])) == 1 for g in range(20))
    assert set(Counter(parts.tolist()).values()) == {12}
