"""Splits of rows into folds and a test part, and nested subsets of a fold."""

from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from prefect_tune.optimizers.space.configuration import ROWS_PER_CLASS
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import (
    LEARN,
    REFIT,
    TEST,
    Split,
    import_split,
    load_split,
    make_split,
    share_held_out_once,
    split_again,
)


def dataset(n: int = 120, share: float = 0.3, *, per_group: int = 0) -> Dataset:
    y = (np.random.default_rng(1).random(n) < share).astype(np.int32)
    groups = np.arange(n, dtype=np.int64) // per_group if per_group else None
    frame = pd.DataFrame({"x": np.zeros(n)})
    return Dataset("d", "table", frame, y, ("a", "b"), groups)


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_every_row_is_held_out_once_or_is_for_testing(seed) -> None:
    data = dataset()
    split = make_split(data, 3, 0.2, seed)
    held_out = [split.held_out(f) for f in range(3)]
    test = split.held_out(REFIT)
    assert len(test) == 24
    assert sorted(np.concatenate([*held_out, test])) == list(range(120))
    for fold in range(3):
        training = split.training(fold, data.y)
        assert not set(training) & (set(held_out[fold]) | set(test))
        assert abs(data.y[held_out[fold]].mean() - data.y.mean()) < 0.05
    assert set(split.training(REFIT, data.y)) == set(range(120)) - set(test)


def test_rows_to_judge_on_are_a_part_of_those_held_out_that_grows_with_its_share() -> None:
    data = dataset(1_000)
    split = make_split(data, 3, 0.2, 0)
    held_out = split.held_out(1)
    half, quarter = (split.evaluated_rows(1, data.y, share) for share in (0.5, 0.25))
    assert set(quarter) < set(half) < set(held_out)
    assert len(quarter) == pytest.approx(len(held_out) / 4, abs=1)
    assert data.y[quarter].mean() == pytest.approx(data.y[held_out].mean(), abs=0.01)
    assert list(split.evaluated_rows(1, data.y)) == list(held_out)
    grouped = dataset(1_000, per_group=4)
    groups = grouped.groups
    assert groups is not None
    rows = make_split(grouped, 3, 0.2, 0).evaluated_rows(1, grouped.y, 0.5, groups)
    assert len(rows) == 4 * len(set(groups[rows]))


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_rows_of_one_group_never_stand_in_two_folds(seed) -> None:
    data = dataset(per_group=4)
    split = make_split(data, 3, 0.25, seed)
    for group in range(30):
        assert len(set(split.fold[data.groups == group])) == 1


def test_a_split_comes_back_as_it_was(tmp_path) -> None:
    store = ArtifactStore(StoreAddress(str(tmp_path)))
    split = make_split(dataset(), 3, 0.2, 5)
    back = load_split(store, import_split(split, store))
    assert back.fold.tolist() == split.fold.tolist()
    assert back.digest() == split.digest()
    assert (split.fold == TEST).sum() == 24


def test_another_seed_is_another_split() -> None:
    digests = {make_split(dataset(), 3, 0.2, seed).digest() for seed in range(5)}
    assert len(digests) == 5


def of_classes(*rows: int) -> Dataset:
    """A data set with so many rows of each class."""
    y = np.repeat(np.arange(len(rows)), rows).astype(np.int32)
    return Dataset(
        "d", "table", pd.DataFrame({"x": np.zeros(len(y))}), y, tuple("abcdefghij"[: len(rows)])
    )


def with_test_rows(data: Dataset, is_test: np.ndarray) -> Dataset:
    return replace(data, is_test=is_test)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (dataset(), (60, 0.2, 0), "60 folds"),
        (dataset(), (3, 0.2, 0, 0.2), "only one"),
        (dataset(), (None, 0.2, 0, None), "only one"),
        (of_classes(30, 4), (3, 0.5, 0), "class 'b'|cannot"),
        (of_classes(*[3] * 10), (3, 0.2, 0), "3 folds"),
        (of_classes(50, 3, 3), (3, 0.2, 0), "class 'b' has 3 rows"),
        (of_classes(118, 2), (5, 0.2, 0), "class 'b'"),
        (of_classes(57, 3), (3, 0.2, 0), "3 rows"),
        (
            with_test_rows(dataset(), (np.arange(120) >= 60) & (dataset().y == 0)),
            (3, None, 0),
            "one class",
        ),
        (with_test_rows(dataset(), dataset().y == 1), (3, None, 0), "class 'b'"),
    ],
)
def test_a_split_that_cannot_be_made_is_refused(data, options, message) -> None:
    with pytest.raises(BadInput, match=message):
        make_split(data, *options)


@st.composite
def with_rare_classes(draw: st.DrawFn) -> Dataset:
    """Rows of four classes or more; some have fewer rows, or groups, than three folds need."""
    sizes = [40, 30, *draw(st.lists(st.integers(1, 9), min_size=2, max_size=8))]
    data = of_classes(*sizes)
    per_group = draw(st.sampled_from((0, 1, 3)))
    order = np.random.default_rng(draw(st.integers(0, 9))).permutation(len(data))
    groups = np.arange(len(data)) // per_group if per_group else None
    data = replace(data, y=data.y[order], groups=groups)
    if not draw(st.booleans()):
        return data
    is_test = np.arange(len(data)) < 24  # whole groups
    is_test[len(data) - 3 :] = False
    return replace(data, is_test=is_test)


@given(with_rare_classes(), st.sampled_from([(3, None), (None, 0.2)]), st.sampled_from([0.0, 0.2]))
def test_every_fold_trains_on_each_class_and_none_holds_out_a_rare_one(
    data, parts, test_size
) -> None:
    n_folds, holdout = parts
    given_test = data.is_test is not None
    with suppress(BadInput) if data.groups is not None else nullcontext():  # may share groups
        split = make_split(data, n_folds, None if given_test else test_size, 0, holdout)
        check_rare_classes(data, split, n_folds or 2)


def check_rare_classes(data: Dataset, split: Split, n_parts: int) -> None:
    given_test = data.is_test is not None
    units = np.arange(len(data)) if data.groups is None else data.groups
    training = split.fold != TEST
    if given_test:
        assert (training != data.is_test).all()
    for position in np.unique(data.y[training]):
        rows = training & (data.y == position)
        if len(np.unique(units[rows])) < n_parts:
            assert (split.fold[rows] == LEARN).all()
    for fold in range(split.n_folds):
        assert set(data.y[split.training(fold, data.y)]) == set(data.y[training])
    if not given_test:
        assert set(data.y[training]) == set(data.y)
    for unit in np.unique(units):
        assert len(np.unique(split.fold[units == unit])) == 1


def test_rare_classes_stay_where_they_are_in_another_split() -> None:
    data = of_classes(60, 30, 2, 1)
    for split in (make_split(data, 3, 0.2, 0), make_split(data, None, 0.2, 0, 0.3)):
        again = split_again(data, split)
        assert split.rare_classes(data.y).tolist() == [2, 3]
        assert again.rare_classes(data.y).tolist() == [2, 3]
        assert (again.fold != split.fold).any()


def test_a_test_part_smaller_than_the_classes_are_many_is_drawn_all_the_same() -> None:
    data = of_classes(*[12] * 10)
    assert (make_split(data, 3, 0.05, 0).fold == TEST).sum() == 6


def test_without_a_test_part_a_class_needs_a_row_a_fold() -> None:
    assert make_split(of_classes(57, 3), 3, 0, 0).n_folds == 3


@pytest.mark.parametrize(
    ("data", "fold", "message"),
    [
        (replace(of_classes(120), groups=np.repeat(np.arange(3), 40)), 40, "one way only"),
        (of_classes(11, 1), 4, "class 'b'"),
    ],
)
def test_another_split_that_cannot_be_made_is_refused(data, fold, message) -> None:
    former = Split((np.arange(len(data)) // fold).astype(np.int16), 3, 0)
    with pytest.raises(BadInput, match=message):
        split_again(data, former)


@pytest.mark.parametrize("per_group", [0, 4])
@pytest.mark.parametrize("holdout", [0.2, 0.5])
def test_a_hold_out_part_is_held_out_once(holdout, per_group) -> None:
    data = dataset(1200, per_group=per_group)
    split = make_split(data, None, 0.2, 3, holdout)
    assert split.n_folds == 1
    held_out, test = split.held_out(0), split.held_out(REFIT)
    training = split.training(0, data.y)
    assert sorted(np.concatenate([held_out, test, training])) == list(range(1200))
    assert len(held_out) == pytest.approx(holdout * 960, abs=30)
    assert sorted(split.training(REFIT, data.y)) == sorted(np.concatenate([held_out, training]))
    if per_group:
        for group in range(300):
            assert len(set(split.fold[data.groups == group])) == 1


@pytest.mark.parametrize(
    ("data", "test_size", "share"),
    [
        (dataset(50_000), 0.0, 0.2),
        (dataset(62_500), 0.2, 0.2),
        (dataset(49_000), 0.0, None),
        (dataset(62_000), 0.2, None),
        (dataset(250_000), 0.2, 0.1),
        (dataset(800_000), 0.0, 0.05),
        (dataset(200_000, share=0.011), 0.0, 0.1),
        (dataset(200_000, share=0.005), 0.0, None),
        (dataset(200_000, share=0.00001), 0.0, None),  # one of two classes is never ignored
        (of_classes(100_000, 100_000, 3), 0.0, 0.1),
        (dataset(200_000, per_group=20), 0.0, 0.1),
        (dataset(200_000, share=0.011), 0.2, None),  # of which a fifth are test rows
        (dataset(200_000, per_group=50), 0.0, None),
        (replace(dataset(4_000_000), classes=()), 0.0, 0.01),
        (replace(dataset(70_000), is_test=np.arange(70_000) < 20_000), None, 0.2),
        (replace(dataset(70_000), is_test=np.arange(70_000) < 21_000), None, None),
    ],
)
def test_one_part_is_held_out_where_it_has_enough_rows_of_each_class_and_groups(
    data, test_size, share
) -> None:
    assert share_held_out_once(data, test_size, 5) == share


@pytest.mark.parametrize("holdout", [None, 0.25])
def test_given_test_rows_are_the_test_part(holdout) -> None:
    is_test = np.arange(120) >= 90
    data = replace(dataset(), is_test=is_test)
    split = make_split(data, 3 if holdout is None else None, None, 0, holdout)
    assert split.held_out(REFIT).tolist() == np.flatnonzero(is_test).tolist()
    assert not set(split.training(0, data.y)) & set(np.flatnonzero(is_test))


def test_without_a_test_part_every_row_is_held_out_by_a_fold() -> None:
    split = make_split(dataset(60), 3, 0, 0)
    assert sorted(np.unique(split.fold)) == [0, 1, 2]
    assert len(split.held_out(REFIT)) == 0
    assert len(split.training(REFIT, np.zeros(60, dtype=np.int32))) == 60


@pytest.mark.parametrize("per_group", [0, 4])
@pytest.mark.parametrize(("n_folds", "holdout"), [(3, None), (None, 0.25)])
def test_another_split_has_other_folds_of_the_same_rows(n_folds, holdout, per_group) -> None:
    data = dataset(1200, per_group=per_group)
    split = make_split(data, n_folds, 0.2, 3, holdout)
    again = split_again(data, split)
    assert (again.n_folds, again.seed) == (split.n_folds, split.seed)
    assert ((again.fold == TEST) == (split.fold == TEST)).all()
    assert (again.fold != split.fold).mean() > 0.2
    for part in np.unique(split.fold):
        of_part = (split.fold == part).sum(), (again.fold == part).sum()
        assert of_part[1] == pytest.approx(of_part[0], abs=12)
    for group in range(1200 // per_group if per_group else 0):
        assert len(set(again.fold[data.groups == group])) == 1
    assert split_again(data, split).digest() == again.digest()


@pytest.mark.parametrize(("n_folds", "holdout"), [(3, None), (None, 0.25)])
@pytest.mark.parametrize("seed", range(4))
def test_few_groups_of_different_sizes_are_dealt_in_another_way(n_folds, holdout, seed) -> None:
    """Which `StratifiedGroupKFold` does not: it draws among equal groups alone."""
    sizes = [200, 150, 120, 100, 90, 80, 60]
    groups = np.repeat(np.arange(len(sizes)), sizes)
    data = replace(dataset(len(groups)), groups=groups)
    split = make_split(data, n_folds, 0.2, seed, holdout)
    again = split_again(data, split)
    rows = split.fold != TEST
    pairs = {(int(a), int(b)) for a, b in zip(split.fold[rows], again.fold[rows], strict=True)}
    assert len(pairs) > len(np.unique(split.fold[rows]))  # not the same parts by other numbers
    assert ((again.fold == TEST) == (split.fold == TEST)).all()
    assert all(len(set(again.fold[groups == g])) == 1 for g in range(len(sizes)))


def test_groups_are_dealt_with_their_classes_spread_as_evenly_as_some_draws_allow() -> None:
    groups = np.repeat(np.arange(12), 30)
    y = (groups % 2).astype(np.int32)  # each group is of one class
    data = replace(dataset(360), groups=groups, y=y)
    split = Split((groups % 3).astype(np.int16), 3, 0)
    again = split_again(data, split)
    shares = [y[again.fold == part].mean() for part in range(3)]
    assert max(shares) - min(shares) < 0.3


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
    data = Dataset(
        "d", "table", pd.DataFrame({"x": range(3000)}), np.zeros(3000, dtype=np.int32), ("a",)
    )
    split = split_of(data)
    drawn = [set(taken(split, data, 0.1, draw)) for draw in range(40)]
    common = [len(a & b) for a, b in pairwise(drawn)]
    assert abs(np.mean(common) - 20) < 2  # of 200 rows of 2,000, a tenth
    assert len(set.union(*drawn)) > 1950
