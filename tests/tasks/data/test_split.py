"""Splits of rows into folds and test rows, and nested subsets of a fold."""

from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold

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
    return Dataset("d", "table", pd.DataFrame({"x": np.zeros(n)}), y, ("a", "b"), groups)


def of_classes(*rows: int) -> Dataset:
    """Return a data set with these numbers of rows per class."""
    y = np.repeat(np.arange(len(rows)), rows).astype(np.int32)
    frame = pd.DataFrame({"x": np.zeros(len(y))})
    return Dataset("d", "table", frame, y, tuple("abcdefghij"[: len(rows)]))


def check_groups(data: Dataset, split: Split) -> None:
    if data.groups is not None:
        pairs = np.unique(np.stack([data.groups, split.fold]), axis=1)
        assert pairs.shape[1] == len(np.unique(data.groups))


@pytest.mark.parametrize("per_group", [0, 4])
@pytest.mark.parametrize(
    ("n_folds", "test_size", "holdout"),
    [(3, 0.25, None), (3, 0, None), (None, 0.25, 0.5), (3, None, None), (None, None, 0.25)],
)
def test_every_row_is_held_out_once_or_tested(
    tmp_path, n_folds, test_size, holdout, per_group
) -> None:
    """Groups stay together; test_size None stands for given test rows."""
    data = dataset(960, per_group=per_group)
    is_given = np.arange(960) >= 720
    data = replace(data, is_test=is_given) if test_size is None else data
    split = make_split(data, n_folds, test_size, 0, holdout)
    store = ArtifactStore(StoreAddress(str(tmp_path)))
    again, back = split_again(data, split), load_split(store, import_split(split, store))
    assert (back.digest(), back.fold.tolist()) == (split.digest(), split.fold.tolist())
    store.close()
    test = split.held_out(REFIT)
    if test_size is None:
        assert test.tolist() == np.flatnonzero(is_given).tolist()
    assert len(test) == pytest.approx(0 if test_size == 0 else 240, abs=20)
    held_out = [split.held_out(fold) for fold in range(split.n_folds)]
    learnt = np.flatnonzero(split.fold == LEARN)
    assert len(learnt) == pytest.approx((1 - (holdout or 1)) * (960 - len(test)), abs=20)
    assert sorted(np.concatenate([*held_out, learnt, test])) == list(range(960))
    for fold, rows in enumerate(held_out):
        training = split.training(fold, data.y)
        assert len(training) == 960 - len(test) - len(rows)
        assert not set(training) & (set(rows) | set(test))
        assert data.y[rows].mean() == pytest.approx(data.y.mean(), abs=0.06)
    assert set(split.training(REFIT, data.y)) == set(range(960)) - set(test)
    assert ((again.fold == TEST) == (split.fold == TEST)).all()
    assert (again.n_folds, again.seed) == (split.n_folds, split.seed)
    assert (again.fold != split.fold).mean() > 0.1
    for one, other in zip(np.bincount(split.fold + 2), np.bincount(again.fold + 2), strict=True):
        assert other == pytest.approx(one, abs=20)
    check_groups(data, split)
    check_groups(data, again)
    assert make_split(data, n_folds, test_size, 9, holdout).digest() != split.digest()


def test_evaluated_rows_are_a_growing_part_of_the_held_out_rows() -> None:
    for per_group in (0, 4):
        data = dataset(1_200, per_group=per_group)
        split = make_split(data, 3, 0.2, 0)
        parts = [split.evaluated_rows(1, data.y, share, data.groups) for share in (0.25, 0.5, 1)]
        assert set(parts[0]) < set(parts[1]) < set(parts[2]) == set(split.held_out(1))
        assert data.y[parts[0]].mean() == pytest.approx(data.y[parts[2]].mean(), abs=0.05)
        if per_group:
            assert len(parts[1]) == 4 * len(set(data.groups[parts[1]]))
        else:
            assert len(parts[0]) == pytest.approx(len(parts[2]) / 4, abs=1)


GIVEN_ONE_CLASS = replace(dataset(), is_test=(np.arange(120) >= 60) & (dataset().y == 0))


@pytest.mark.parametrize(
    ("data", "options", "named"),
    [
        (dataset(), (60, 0.2, 0), "60 folds"),
        (dataset(), (3, 0.2, 0, 0.2), "--holdout 0.2"),
        (dataset(), (None, 0.2, 0, None), "--folds None"),
        (of_classes(30, 4), (3, 0.5, 0), "'b'|cannot"),
        (of_classes(*[3] * 10), (3, 0.2, 0), "3 folds"),
        (of_classes(50, 3, 3), (3, 0.2, 0), "'b' has 3"),
        (of_classes(118, 2), (5, 0.2, 0), "class 'b'"),
        (of_classes(57, 3), (3, 0.2, 0), "3 rows"),
        (GIVEN_ONE_CLASS, (3, None, 0), "one class"),
        (replace(dataset(), is_test=dataset().y == 1), (3, None, 0), "class 'b'"),
    ],
)
def test_impossible_split_is_refused(data, options, named) -> None:
    with pytest.raises(BadInput, match=named):
        make_split(data, *options)


@pytest.mark.parametrize("test_size", [None, 0.0, 0.2])
@pytest.mark.parametrize(("n_folds", "holdout"), [(3, None), (None, 0.2)])
@pytest.mark.parametrize("per_group", [0, 1, 3])
def test_every_fold_trains_on_each_class_and_holds_out_no_rare_class(
    n_folds, holdout, per_group, test_size
) -> None:
    """Some classes have fewer rows, or groups, than three folds need."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        data = of_classes(40, 30, *rng.integers(1, 10, 2 + seed))
        order, groups = rng.permutation(len(data)), np.arange(len(data)) // max(per_group, 1)
        data = replace(data, y=data.y[order], groups=groups if per_group else None)
        if test_size is None:
            data = replace(data, is_test=groups < 24 // max(per_group, 1))
        with suppress(BadInput) if per_group else nullcontext():  # may share groups
            split = make_split(data, n_folds, test_size, 0, holdout)
            training = split.fold != TEST
            check_groups(data, split)
            for position in np.unique(data.y[training]):
                rows = training & (data.y == position)
                if len(np.unique(groups[rows])) < (n_folds or 2):
                    assert (split.fold[rows] == LEARN).all()
            for fold in range(split.n_folds):
                assert set(data.y[split.training(fold, data.y)]) == set(data.y[training])
            if test_size is None:
                assert (training != data.is_test).all()
            else:
                assert set(data.y[training]) == set(data.y)


def test_rare_classes_stay_in_training_and_small_classes_are_spread() -> None:
    data = of_classes(60, 30, 2, 1)
    for split in (make_split(data, 3, 0.2, 0), make_split(data, None, 0.2, 0, 0.3)):
        again = split_again(data, split)
        for one in (split, again):
            assert one.rare_classes(data.y).tolist() == [2, 3]
        assert (again.fold != split.fold).any()
    assert (make_split(of_classes(*[12] * 10), 3, 0.05, 0).fold == TEST).sum() == 6
    assert make_split(of_classes(57, 3), 3, 0, 0).n_folds == 3


@pytest.mark.parametrize(
    ("data", "fold", "named"),
    [
        (replace(of_classes(120), groups=np.repeat(np.arange(3), 40)), 40, "one way"),
        (of_classes(11, 1), 4, "class 'b'"),
    ],
)
def test_impossible_second_split_is_refused(data, fold, named) -> None:
    former = Split((np.arange(len(data)) // fold).astype(np.int16), 3, 0)
    with pytest.raises(BadInput, match=named):
        split_again(data, former)


@pytest.mark.parametrize(
    ("data", "test_size", "share"),
    [
        (dataset(50_000), 0.0, 0.2),
        (dataset(49_000), 0.0, None),
        (dataset(250_000), 0.2, 0.1),
        (dataset(800_000), 0.0, 0.05),
        (dataset(200_000, share=0.011), 0.0, 0.1),
        (dataset(200_000, share=0.00001), 0.0, None),  # one of two classes is never ignored
        (of_classes(100_000, 100_000, 3), 0.0, 0.1),
        (dataset(200_000, per_group=20), 0.0, 0.1),
        (dataset(200_000, share=0.011), 0.2, None),  # of which a fifth are test rows
        (dataset(200_000, per_group=50), 0.0, None),
        (replace(dataset(100_000), classes=()), 0.0, 0.1),
        (replace(dataset(70_000), is_test=np.arange(70_000) < 20_000), None, 0.2),
        (replace(dataset(70_000), is_test=np.arange(70_000) < 21_000), None, None),
    ],
)
def test_single_holdout_is_used_if_rows_and_groups_suffice(data, test_size, share) -> None:
    assert share_held_out_once(data, test_size, 5) == share


@pytest.mark.parametrize(("n_folds", "holdout"), [(3, None), (None, 0.25)])
@pytest.mark.parametrize("seed", range(4))
def test_second_split_differs_even_with_few_groups_of_different_sizes(
    n_folds, holdout, seed
) -> None:
    """`StratifiedGroupKFold` may repeat a split, because it draws only among equal groups."""
    sizes = [200, 150, 120, 100, 90, 80, 60]
    data = replace(dataset(sum(sizes)), groups=np.repeat(np.arange(len(sizes)), sizes))
    split = make_split(data, n_folds, 0.2, seed, holdout)
    again = split_again(data, split)
    rows = split.fold != TEST
    pairs = {(int(a), int(b)) for a, b in zip(split.fold[rows], again.fold[rows], strict=True)}
    assert len(pairs) > len(np.unique(split.fold[rows]))  # not the same parts by other numbers
    assert ((again.fold == TEST) == (split.fold == TEST)).all()
    check_groups(data, again)


def test_many_groups_are_split_in_bundles_with_a_rare_class_in_every_part(monkeypatch) -> None:
    seen: list[int] = []

    class Seen(StratifiedGroupKFold):
        def split(self, X, y, groups):
            seen.append(len(np.unique(groups)))
            return super().split(X, y, groups)

    monkeypatch.setattr("prefect_tune.tasks.data.split._MOST_UNITS", 3)
    monkeypatch.setattr("prefect_tune.tasks.data.split.StratifiedGroupKFold", Seen)
    groups = np.repeat(np.arange(30), 4)
    data = replace(dataset(120), groups=groups, y=(groups >= 27).astype(np.int32))
    split = make_split(data, 3, 0, 0)
    check_groups(data, split)
    assert seen == [3]
    assert [int(data.y[split.fold == part].sum()) for part in range(3)] == [4, 4, 4]


def test_groups_are_assigned_with_classes_spread_evenly() -> None:
    groups = np.repeat(np.arange(12), 30)
    y = (groups % 2).astype(np.int32)  # each group is of one class
    data = replace(dataset(360), groups=groups, y=y)
    again = split_again(data, Split((groups % 3).astype(np.int16), 3, 0))
    shares = [y[again.fold == part].mean() for part in range(3)]
    assert max(shares) - min(shares) < 0.3


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    """Return single rows, or groups of up to five rows of one class."""
    n = draw(st.integers(60, 150))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    y = np.sort(rng.choice(3, n, p=(0.7, 0.2, 0.1)).astype(np.int32))
    y[-12:], y[-24:-12] = 2, 1  # enough for the folds
    y = np.sort(y)
    groups = (np.arange(n, dtype=np.int64) // draw(st.integers(1, 5))) * 3 + y
    order = rng.permutation(n)
    kept = draw(st.sampled_from((groups[order], None)))
    return Dataset("d", "table", pd.DataFrame({"x": range(n)}), y[order], ("a", "b", "c"), kept)


SHARES = st.floats(0.001, 1.0)


def taken(split: Split, data: Dataset, share: float, draw: int = 0) -> NDArray[np.intp]:
    return split.training(0, data.strata, share, draw, data.groups)


@given(datasets(), SHARES, SHARES, st.integers(0, 3))
def test_subsets_are_nested_and_stratified_and_groups_stay_whole(data, first, second, draw) -> None:
    split = Split(np.arange(len(data)).astype(np.int16) % 3, 3, 0)
    small, large = sorted((first, second))
    inner, outer, whole = (taken(split, data, share, draw) for share in (small, large, 1.0))
    assert set(inner) <= set(outer) <= set(whole)
    assert (np.diff(inner) > 0).all()
    n, of = (np.bincount(data.y[rows], minlength=3) for rows in (inner, whole))
    largest = 1 if data.groups is None else np.unique(data.groups, return_counts=True)[1].max()
    wanted = np.maximum(small * of, np.minimum(of, ROWS_PER_CLASS))
    assert (np.abs(n - wanted) <= largest - 0.5).all()  # within a row or a group
    if data.groups is not None:
        assert not set(data.groups[inner]) & set(data.groups[np.setdiff1d(whole, inner)])


def test_subset_of_numbers_covers_the_whole_range() -> None:
    y = np.random.default_rng(0).normal(size=200)
    data = Dataset("d", "table", pd.DataFrame({"x": y}), y, ())
    n = np.bincount(data.strata[taken(make_split(data, 3, 0.2, 0), data, 0.01)])
    assert n.tolist() == [ROWS_PER_CLASS] * 10


def test_draws_of_subsets_are_independent() -> None:
    """Two draws overlap only by chance, and every row is in some draw."""
    data: Any = of_classes(3000)
    split = Split(np.arange(3000).astype(np.int16) % 3, 3, 0)
    drawn = [set(taken(split, data, 0.1, draw)) for draw in range(40)]
    common = [len(a & b) for a, b in pairwise(drawn)]
    assert abs(np.mean(common) - 20) < 2  # of 200 rows of 2,000, a tenth
    assert len(set.union(*drawn)) > 1950
