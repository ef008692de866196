import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.optimizers import Objective
from prefect_tune.optimizers.methods.fabolas.sizes import Sizes, log_size

LARGE = Objective(n_rows=50_000, n_classes=10, n_rarest=4_000)


def test_worked_example_of_the_logarithmic_scale() -> None:
    s = log_size([3_125, 50_000 / 64, 100, 50_000], 100, 50_000)
    assert s == pytest.approx([0.5538594424, 0.3307891636, 0.0, 1.0], abs=1e-10)
    assert (1 - s[0]) ** 2 == pytest.approx(0.1990413971, abs=1e-10)


def test_sizes_outside_the_range_are_at_its_ends_and_a_range_of_one_size_is_the_full_data() -> None:
    assert log_size([10, 10_000], 100, 5_000).tolist() == [0.0, 1.0]
    assert log_size([1, 7], 7, 7).tolist() == [1.0, 1.0]


@given(n_min=st.integers(1, 1_000), factor=st.floats(1.5, 1e5), s=st.floats(0, 1))
def test_rows_at_s_are_at_s(n_min: int, factor: float, s: float) -> None:
    n_max = int(np.ceil(n_min * factor))
    n = n_min * (n_max / n_min) ** s
    assert float(log_size(n, n_min, n_max)) == pytest.approx(s, abs=1e-9)


@pytest.mark.parametrize(
    ("objective", "smallest", "n_min"),
    [
        (LARGE, 1 / 256, 195),
        (Objective(n_rows=50_000, n_classes=200, n_rarest=200), 1 / 16, 3_125),
        (Objective(n_rows=9_000, n_classes=2, n_rarest=3_000), 1 / 128, 70),
        (Objective(n_rows=9_000, n_classes=0, n_rarest=5), 1 / 128, 70),
        (Objective(n_rows=9_000), 1 / 128, 70),
        (Objective(n_rows=400, n_classes=2, n_rarest=100), 1 / 8, 50),
        (Objective(), 1 / 64, 1),
    ],
)
def test_the_smallest_subset_holds_enough_rows_and_each_class(
    objective: Objective, smallest: float, n_min: int
) -> None:
    sizes = Sizes.of(objective)
    assert (sizes.shares[0], sizes.n_min, sizes.note) == (smallest, n_min, "")
    assert not sizes.is_single


def test_a_rare_class_raises_the_smallest_subset_and_this_is_said() -> None:
    sizes = Sizes.of(Objective(n_rows=9_000, n_classes=2, n_rarest=33))
    assert sizes.shares == (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
    assert "is 1/16 of the rows, as the rarest class of 33 training rows" in sizes.note


@pytest.mark.parametrize(
    ("objective", "why"),
    [
        (Objective(n_rows=399, n_classes=2, n_rarest=100), "would have 50 of the 399 training"),
        (Objective(n_rows=40), "would have 50 of the 40 training rows"),
        (Objective(n_rows=9_000, n_classes=2, n_rarest=15), "the rarest class has 15 of the 9000"),
        (Objective(n_rows=9_000, n_classes=2, n_rarest=1), "smallest subset would have 18000"),
    ],
)
def test_data_without_room_for_subsets_is_worked_on_whole(objective: Objective, why: str) -> None:
    sizes = Sizes.of(objective)
    assert sizes.is_single
    assert (sizes.shares, sizes.n_min) == ((1.0,), sizes.n_max)
    assert sizes.note.startswith("subsets cannot help")
    assert why in sizes.note
    assert float(sizes.s(1.0)) == 1.0


@given(
    n_rows=st.integers(1, 10_000_000),
    n_classes=st.integers(0, 300),
    rare=st.floats(0, 1),
)
def test_shares_of_any_data_halve_and_each_holds_what_it_needs(
    n_rows: int, n_classes: int, rare: float
) -> None:
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 5, (1.0,)), "rise from >= 1 row; got 0 to 5"),
        ((9, 5, (1.0,)), "got 9 to 5"),
        ((1, 5, ()), "shares rise"),
        ((1, 5, (0.5,)), "shares rise"),
        ((1, 5, (0.0, 1.0)), "shares rise"),
        ((1, 5, (0.5, 0.5, 1.0)), "shares rise"),
        ((1, 5, (1.0,)), "do not fit a range of 1 to 5 rows"),
        ((5, 5, (0.5, 1.0)), "do not fit"),
    ],
)
def test_impossible_sizes_are_refused(
    arguments: tuple[int, int, tuple[float, ...]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Sizes(*arguments)
