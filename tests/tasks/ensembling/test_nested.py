"""The nested estimate, and the choice among kinds of ensembles by it."""

from collections import Counter

import numpy as np
import pytest
from held_out_worlds import held_out_of, noisy_classes
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.tasks.ensembling.choosing import KINDS, choose
from prefect_tune.tasks.ensembling.held_out import HeldOut
from prefect_tune.tasks.ensembling.nested import best_kind, deal, nested_losses

BOOTSTRAPS = Bootstraps(100, 0.5)


def estimated(held_out: HeldOut, size: int = 32, seed: int = 0) -> dict[str, float]:
    sequence = np.random.SeedSequence(seed)
    return dict(nested_losses(held_out, size, BOOTSTRAPS, sequence))


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


def test_choosing_among_noise_flatters_nobody() -> None:
    """The mean of 12 estimates has a standard error of 50/sqrt(12*150) = 1.2 percent."""
    nested, on_own_rows = [], []
    for seed in range(12):
        y, predicted = noisy_classes(60, 150, 0.5, np.random.default_rng(seed))
        held_out = held_out_of(y, predicted, "error", fold=np.arange(150) % 3)
        nested.append([*(losses := estimated(held_out, seed=seed)).values(), min(losses.values())])
        rng = np.random.default_rng(0)
        choices = [choose(kind, held_out, 32, BOOTSTRAPS, rng) for kind in KINDS]
        on_own_rows.append([choice.losses[-1] for choice in choices])
    assert np.abs(np.mean(nested, axis=0) - 50).max() < 5
    assert (np.mean(on_own_rows, axis=0) < 42).all()  # what judging on the same rows would say


def test_estimates_are_of_the_seed_alone() -> None:
    held_out, size = with_two_whose_errors_cancel()
    assert estimated(held_out, size) == estimated(held_out, size)
    assert estimated(held_out, size) != estimated(held_out, size, seed=1)


def test_a_part_without_a_class_counts_for_no_kind() -> None:
    rng = np.random.default_rng(0)
    y, fold = np.zeros(90, dtype=int), np.arange(90) % 3
    y[:9] = 1  # three in each fold, so that two of its five parts have none
    score = np.clip(0.5 + 0.1 * y + 0.2 * rng.normal(size=(10, 90)), 0, 1)
    held_out = held_out_of(y, np.stack([1 - score, score], axis=2), "auroc", fold=fold)
    assert set(estimated(held_out)) == set(KINDS)
    assert all(0 <= loss <= 1 for loss in estimated(held_out).values())


def test_too_few_rows_give_no_estimate() -> None:
    y, fold = np.zeros(30, dtype=int), np.arange(30) % 3
    y[:3] = 1  # one in each fold
    score = np.random.default_rng(0).random((4, 30))
    held_out = held_out_of(y, np.stack([1 - score, score], axis=2), "auroc", fold=fold)
    assert estimated(held_out) == {}


@given(st.integers(0, 99), st.integers(3, 60), st.integers(1, 4), st.integers(2, 5))
def test_rows_are_dealt_alike_within_folds_and_classes(seed, m, n_folds, n_parts) -> None:
    rng = np.random.default_rng(seed)
    y, fold = rng.permutation(np.arange(m) % 3), rng.integers(-1, n_folds, m)
    held_out = held_out_of(y, np.tile(y, (1, 1)), "error", fold=fold)
    parts = deal(held_out, n_parts, rng)
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
    parts = deal(held_out, 5, rng)
    assert all(len(set(parts[groups == g])) == 1 for g in range(20))
    assert set(Counter(parts.tolist()).values()) == {12}
