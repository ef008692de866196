"""Subsets of training rows: nested, stratified, of whole groups, the same in every process."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from prefect_tune.optimizers.space.configuration import ROWS_PER_CLASS
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import Split, make_split

SHARES = st.floats(0.001, 1.0)


@st.composite
def datasets(draw: st.DrawFn, *, is_pure: bool = False) -> Dataset:
    """Rows by themselves or in groups of up to five; pure groups have rows of one class."""
    n = draw(st.integers(60, 150))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    y = np.sort(rng.choice(3, n, p=(0.7, 0.2, 0.1)).astype(np.int32))
    y[-12:], y[-24:-12] = 2, 1  # enough for the folds
    groups = np.arange(n, dtype=np.int64) // draw(st.integers(1, 5))
    if is_pure:
        groups = groups * 3 + y
    order = rng.permutation(n)
    frame = pd.DataFrame({"x": np.arange(n)})
    kept = draw(st.sampled_from((groups, None)))
    y = np.sort(y)[order]
    return Dataset("d", "table", frame, y, ("a", "b", "c"), None if kept is None else kept[order])


def taken(
    split: Split, data: Dataset, share: float, draw: int = 0, fold: int = 0
) -> NDArray[np.intp]:
    return split.training(fold, data.strata, share, draw, data.groups)


def split_of(data: Dataset) -> Split:
    return Split(np.arange(len(data)).astype(np.int16) % 3, 3, 0)


@given(datasets(), SHARES, SHARES, st.integers(0, 3))
def test_a_smaller_one_lies_in_a_larger_and_that_in_the_fold(data, first, second, draw) -> None:
    small, large = sorted((first, second))
    split = split_of(data)
    inner, outer = taken(split, data, small, draw), taken(split, data, large, draw)
    assert set(inner) <= set(outer) <= set(taken(split, data, 1.0))
    assert (np.diff(inner) > 0).all()


@given(datasets(), SHARES)
def test_each_class_has_its_share_and_at_least_two_rows(data, share) -> None:
    split = split_of(data)
    n = np.bincount(data.y[taken(split, data, share)], minlength=3)
    of = np.bincount(data.y[taken(split, data, 1.0)], minlength=3)
    assert (n >= np.minimum(of, ROWS_PER_CLASS)).all()
    assert (n >= share * of - 0.5).all()


@given(datasets(is_pure=True), SHARES)
def test_each_class_is_within_a_row_or_a_group_of_its_share(data, share) -> None:
    split = split_of(data)
    n = np.bincount(data.y[taken(split, data, share)], minlength=3)
    of = np.bincount(data.y[taken(split, data, 1.0)], minlength=3)
    largest = 1 if data.groups is None else np.unique(data.groups, return_counts=True)[1].max()
    wanted = np.maximum(share * of, np.minimum(of, ROWS_PER_CLASS))
    assert (np.abs(n - wanted) <= largest - 0.5).all()


@given(datasets(), SHARES)
def test_groups_are_whole(data, share) -> None:
    split = split_of(data)
    inner, whole = taken(split, data, share), taken(split, data, 1.0)
    if data.groups is not None:
        left = np.setdiff1d(whole, inner)
        assert not set(data.groups[inner]) & set(data.groups[left])


@given(st.integers(0, 50))
def test_numbers_are_taken_from_all_of_their_range(seed) -> None:
    y = np.random.default_rng(seed).normal(size=200)
    data = Dataset("d", "table", pd.DataFrame({"x": y}), y, ())
    split = make_split(data, 3, 0.2, 0)
    n = np.bincount(data.strata[taken(split, data, 0.01)])
    assert n.tolist() == [ROWS_PER_CLASS] * 10


def test_draws_are_independent_families() -> None:
    """Two of them share as many rows as chance has it, and each row is in some."""
    data = Dataset("d", "table", pd.DataFrame({"x": range(3000)}), _zeros(3000), ("a",))
    split = split_of(data)
    drawn = [set(taken(split, data, 0.1, draw)) for draw in range(40)]
    common = [len(a & b) for a, b in pairwise(drawn)]
    assert abs(np.mean(common) - 20) < 2  # of 200 rows of 2,000, a tenth
    assert len(set.union(*drawn)) > 1950


def test_folds_are_drawn_for_by_themselves() -> None:
    data = Dataset("d", "table", pd.DataFrame({"x": range(3000)}), _zeros(3000), ("a",))
    split = split_of(data)
    both = set(taken(split, data, 0.1)) & set(taken(split, data, 0.1, fold=1))
    assert len(both) < 30


def test_another_process_takes_the_same_rows() -> None:
    code = (
        "import numpy as np\n"
        "from prefect_tune.tasks.data.split import nested_subset\n"
        "strata, groups = np.arange(90) % 3, np.arange(90) // 4\n"
        "print(nested_subset(strata, groups, 0.2, np.random.default_rng(5)).tolist())\n"
    )
    said = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert said[0].stdout == said[1].stdout
    assert len(said[0].stdout) > 30


def _zeros(n: int) -> NDArray[np.int32]:
    return np.zeros(n, dtype=np.int32)
