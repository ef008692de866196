"""Sizes of subsets, basis functions over sizes, and the gate on subsets."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.optimizers import Objective
from prefect_tune.optimizers.methods.fabolas.gate import Prediction, is_open, skills_of
from prefect_tune.optimizers.methods.fabolas.subsets import COST, LOG_LOSS, PAPER_LOSS, TASKS, Sizes

SIZES = Sizes(100, 50_000, (1 / 512, 1 / 64, 1 / 8, 1.0))
LARGE = Objective(n_rows=50_000, n_classes=10, n_rarest=4_000)


def test_sizes_are_logarithmic_and_clipped_to_the_range() -> None:
    s = SIZES.s([1 / 16, 1 / 64, 1 / 500, 1.0, 1e-4])
    assert s == pytest.approx([0.5538594424, 0.3307891636, 0.0, 1.0, 0.0], abs=1e-10)
    assert PAPER_LOSS.functions(s)[0] == pytest.approx([1.0, 0.1990413971], abs=1e-10)
    assert Sizes(7, 7, (1.0,)).s([0.1, 1.0]).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("objective", "smallest", "n_min"),
    [
        (LARGE, 1 / 256, 195),
        (Objective(n_rows=50_000, n_classes=200, n_rarest=200), 1 / 16, 3_125),
        (Objective(n_rows=9_000, n_classes=2, n_rarest=3_000), 1 / 128, 70),
        (Objective(n_rows=9_000, n_classes=0, n_rarest=5), 1 / 128, 70),
        (Objective(n_rows=9_000, n_classes=2, n_rarest=33), 1 / 16, 562),
        (Objective(n_rows=400, n_classes=2, n_rarest=100), 1 / 8, 50),
        (Objective(), 1 / 64, 1),
    ],
)
def test_smallest_subset_has_enough_rows_and_every_class(objective, smallest, n_min) -> None:
    sizes = Sizes.of(objective)
    assert (sizes.shares[0], sizes.n_min, sizes.note) == (smallest, n_min, "")
    assert not sizes.is_single


@pytest.mark.parametrize(("n_rows", "n_rarest", "why"), [(399, 100, "399"), (9_000, 15, "has 15")])
def test_small_data_gets_no_subsets(n_rows, n_rarest, why) -> None:
    sizes = Sizes.of(Objective(n_rows=n_rows, n_classes=2, n_rarest=n_rarest))
    assert (sizes.is_single, sizes.shares, sizes.n_min) == (True, (1.0,), sizes.n_max)
    assert why in sizes.note
    assert float(sizes.s(1.0)) == 1.0


@given(n_rows=st.integers(1, 10_000_000), n_classes=st.integers(0, 300), rare=st.floats(0, 1))
def test_shares_of_rows_are_halved_while_enough_rows_remain(n_rows, n_classes, rare) -> None:
    rarest = max(1, int(rare * n_rows / max(n_classes, 1)))
    sizes = Sizes.of(Objective(n_rows=n_rows, n_classes=n_classes, n_rarest=rarest))
    assert [2**-k for k in reversed(range(len(sizes.shares)))] == list(sizes.shares)
    assert len(sizes.shares) <= 12
    s = sizes.s(sizes.shares)
    assert s[-1] == 1.0
    if not sizes.is_single:
        assert len(sizes.shares) >= 4
        assert s == pytest.approx(np.linspace(0, 1, len(s)), abs=5e-3)
        assert sizes.shares[0] * n_rows >= max(50, 10 * n_classes)
        assert not n_classes or sizes.shares[0] * rarest >= 2


def test_power_law_of_rows_is_linear_in_logarithms() -> None:
    rows = np.array([100.0, 400.0, 3_000.0, 50_000.0])
    s = SIZES.s(rows / 50_000)
    for basis, power in ((LOG_LOSS, -0.4), (COST, 1.8)):
        phi, target = basis.functions(s)[:, :2], np.log(3.0 * rows**power)
        weights = np.linalg.lstsq(phi, target)[0]
        assert phi @ weights == pytest.approx(target, abs=1e-9)
    assert weights[1] / np.log(500) == pytest.approx(1.8)
    # Two tasks are told apart, and the full data is the first.
    assert TASKS.functions(np.array([0.0, 0.6, 1.0])).tolist() == [[0, 1], [0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("sizes", "first"),
    [
        (Sizes.of(LARGE), (1 / 64, 1 / 32, 1 / 16, 1 / 8)),
        (Sizes.of(Objective(n_rows=400)), (1 / 8,)),
        (Sizes.pair(LARGE, 0.25), (0.25,)),
        (Sizes.single(LARGE), (1.0,)),
    ],
)
def test_first_design_uses_small_shares(sizes: Sizes, first: tuple[float, ...]) -> None:
    assert sizes.first_shares == first


def test_continuous_sizes_are_all_numbers_of_rows_from_ten_per_class() -> None:
    sizes = Sizes.of(LARGE, is_continuous=True)
    assert (sizes.n_min, sizes.shares[0], sizes.first_shares[0]) == (100, 1 / 256, 1 / 64)
    shares = [sizes.share(float(s)) for s in np.linspace(0, 1, 101)]
    assert len(set(shares)) == 101
    assert (shares[0], shares[-1]) == (100 / 50_000, 1.0)
    rows = np.array(shares) * 50_000
    assert rows == pytest.approx(np.round(rows))
    assert sizes.s(shares) == pytest.approx(np.linspace(0, 1, 101), abs=0.002)
    assert sizes.nearest(sizes.s(0.11)) == 1 / 8
    assert Sizes.of(Objective(n_rows=900, n_classes=0), is_continuous=True).n_min == 50
    assert Sizes.of(Objective(n_rows=30, n_classes=2), is_continuous=True).is_single
    steps = Sizes.of(LARGE)
    assert {steps.share(float(s)) for s in np.linspace(0, 1, 101)} == set(steps.shares)


SURE = 0.1
OUTCOMES = (0.0, 1.5, -1.2, 0.8, -0.6, 1.1, -1.4, 0.3, 1.3, -0.9)
"""Of full evaluations in the order of asking, with a spread of 1."""


def skills(errors: Sequence[float]) -> list[float]:
    """Return the skills for these prediction errors of all full evaluations except the first."""
    predictions = {i: Prediction("", OUTCOMES[i] + e, SURE) for i, e in enumerate(errors, start=1)}
    return skills_of(predictions, dict(enumerate(OUTCOMES[: len(errors) + 1])), 1.0)


def test_gate_rejects_subsets_after_several_wrong_predictions() -> None:
    assert all(is_open(skills([0.05] * n)) for n in range(8))
    assert not is_open(skills([0.9, -0.8, 1.0]))
    assert is_open(skills([9.0]))
    assert is_open(skills([0.05, 0.05, 0.05, 9.0]))
    assert not is_open(skills([0.05, 0.05, *[9.0] * 4]))


def test_skill_ignores_later_results_and_is_zero_for_vague_predictions() -> None:
    errors = [0.15, 0.3, 0.1, 0.4, 0.2, 0.1]
    for n in range(1, len(errors)):
        assert skills(errors[:n]) == skills(errors)[:n]
    # Earlier losses guess 3 +- 1, so 5 is two deviations away, as from 6 +- 0.5.
    known = skills_of({2: Prediction("", 6.0, 0.5)}, {0: 2.0, 1: 4.0, 2: 5.0}, 1.0)
    assert known == pytest.approx([np.log(2)])
    outcomes = {0: 0.0, 1: 3.0}
    assert skills_of({1: Prediction("", 3.8, 0.4)}, outcomes, 1.0)[0] > 1.5
    assert skills_of({1: Prediction("", 3.0, 0.8)}, outcomes, 1.0) == [0.0]
    assert skills_of({1: Prediction("", 3.0, 0.6)}, outcomes, 1.0)[0] > 1.0


def test_predictions_are_restored_from_the_memo_with_positive_deviations() -> None:
    first = Prediction("verify", -1.25, 0.5)
    memo = json.loads(json.dumps({"full": {"7": first.to_json()}}))
    assert Prediction.all_of(memo) == {7: first}
    assert Prediction.all_of({}) == {}
    kept = Prediction("search", 1 / 3, 2e-11 / 3).to_json()
    assert kept == ["search", 0.333333333, 6.66666667e-12]
