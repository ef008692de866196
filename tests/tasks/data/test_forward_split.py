"""Splits by time: each fold trains on rows older than its held-out rows."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from inputs import event_rows
from inputs import events as small_events
from inputs import table as small_table

from prefect_tune.storage.artifacts import StoreAddress
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.event_tables import events_table, labels_table
from prefect_tune.tasks.data.forward_split import another_split, holdout_share, study_split
from prefect_tune.tasks.data.reading import events_dataset
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import (
    LEARN,
    REFIT,
    SKIPPED,
    TEST,
    Split,
    import_split,
    load_split,
)
from prefect_tune.tasks.data.tables import frame_dataset
from prefect_tune.tasks.problem import open_store

DAY = 86_400.0


def table(n: int = 300, *, per_day: int = 1, per_group: int = 0, n_classes: int = 2) -> Dataset:
    """Return rows in random order, with times on consecutive days."""
    rng = np.random.default_rng(0)
    days = rng.permutation(n) // per_day
    y = rng.integers(0, n_classes, n).astype(np.int32)
    groups = days.astype(np.int64) * per_day // per_group if per_group else None
    times = np.datetime64("2020-01-01", "us") + days.astype("timedelta64[D]")
    frame = pd.DataFrame({"x": np.arange(float(n))})
    return Dataset("d", "table", frame, y, tuple("abcdef"[:n_classes]), groups, times=times)


def events(n: int = 120) -> Dataset:
    """Return patients with two prediction times each, two months apart."""
    days = pd.to_timedelta(np.arange(n) // 2 + 60 * (np.arange(n) % 2), unit="D")
    rows = list(zip((np.arange(n) // 2).tolist(), pd.Timestamp("2020-03-01") + days, strict=True))
    log = [(patient, "2020-01-01", "A", 1.0) for patient in range(n // 2)]
    y = (np.arange(n) % 3 == 0).astype(np.int32)
    return Dataset("e", "events", event_rows(log, rows), y, (0, 1), np.arange(n) // 2)


def micros(data: Dataset) -> Any:
    times = data.times if isinstance(data.X, pd.DataFrame) else data.X.rows["prediction_time"]
    return np.asarray(times, dtype="datetime64[us]").view(np.int64)


def check_forward(data: Dataset, split: Split, gap_seconds: float) -> None:
    """Check that training rows are older than held-out rows by the gap, and have other groups."""
    times = micros(data)
    for fold in (*range(split.n_folds), REFIT):
        training, held_out = split.training(fold, data.strata), split.held_out(fold)
        assert len(training) == split.n_training(fold) > 0
        if not len(held_out):
            continue
        assert times[training].max() < times[held_out].min() - gap_seconds * 1e6
        if data.groups is not None:
            assert not set(data.groups[training]) & set(data.groups[held_out])
    for fold in range(1, split.n_folds):
        newer, older = split.held_out(fold - 1), split.held_out(fold)
        assert times[older].max() < times[newer].min()


@pytest.mark.parametrize("gap_seconds", [0.0, 5 * DAY])
@pytest.mark.parametrize(("n_folds", "holdout"), [(3, None), (None, 0.25)])
@pytest.mark.parametrize(
    "data",
    [table(per_day=7), table(per_group=9), table(200, per_day=3, per_group=2), events()],
    ids=["day", "group", "group of a day", "event"],
)
def test_folds_train_on_older_rows_of_other_groups(
    tmp_path, data, n_folds, holdout, gap_seconds
) -> None:
    split = study_split(data, n_folds, 0.2, 0, holdout, gap_seconds)
    check_forward(data, split, gap_seconds)
    again = another_split(data, split)
    check_forward(data, again, gap_seconds)
    assert ((again.fold == TEST) == (split.fold == TEST)).all()
    assert (again.fold != split.fold).mean() > 0.05
    assert micros(data)[split.fold != TEST].max() < micros(data)[split.fold == TEST].min()
    assert another_split(data, split).digest() == again.digest() != split.digest()
    store = open_store(StoreAddress(str(tmp_path / "store")))
    back = load_split(store, import_split(split, store))
    assert (back.digest(), back.gap_seconds) == (split.digest(), gap_seconds)
    assert (back.trains == split.trains).all()


def test_oldest_block_is_used_only_for_training_and_blocks_have_similar_sizes() -> None:
    data = table(400)
    split = study_split(data, 3, 0.2, 0, None, 0.0)
    in_order = split.fold[np.argsort(micros(data))].tolist()
    assert in_order == [LEARN] * 80 + [2] * 80 + [1] * 80 + [0] * 80 + [TEST] * 80
    once = study_split(data, None, 0.2, 0, 0.25, 0.0).fold[np.argsort(micros(data))]
    assert np.flatnonzero(once == 0).tolist() == [*range(240, 320)]
    half, quarter = (split.training(1, data.y, share) for share in (0.5, 0.25))
    assert set(quarter) < set(half) < set(split.training(1, data.y))
    data = replace(table(300), times=np.arange(300.0))  # numbers without a unit
    split = study_split(data, 2, 0.2, 0, None, 0.0)
    assert split.held_out(REFIT).tolist() == list(range(240, 300))
    assert split.training(0, data.y).tolist() == list(range(160))


def test_rows_in_the_gap_and_older_rows_of_test_groups_are_never_used() -> None:
    data = table(300, per_group=9)
    split = study_split(data, 3, 0.2, 0, None, 20 * DAY)
    times = micros(data)
    start = times[split.fold == TEST].min()
    is_late = (times < start) & (times >= start - 20 * DAY * 1e6)
    assert (split.fold[is_late] == SKIPPED).all()
    assert not set(data.groups[split.is_training]) & set(data.groups[split.fold == TEST])
    used = np.concatenate([split.training(fold, data.y) for fold in (0, 1, 2, REFIT)])
    assert not is_late[used].any()


def test_given_test_rows_are_kept_and_the_gap_applies_only_if_newest() -> None:
    data = table(300)
    is_any = np.arange(300) < 60
    split = study_split(replace(data, is_test=is_any), 3, None, 0, None, 0.0)
    assert ((split.fold == TEST) == is_any).all()
    assert split.n_training(REFIT) == 240
    times = micros(data)
    is_newest = times >= np.sort(times)[240]
    split = study_split(replace(data, is_test=is_newest), 3, None, 0, None, 20 * DAY)
    is_late = ~is_newest & (times >= times[is_newest].min() - 20 * DAY * 1e6)
    assert is_late.sum() == 20
    assert ((split.fold == SKIPPED) == is_late).all()


def test_classes_that_appear_only_in_newer_rows_do_not_stop_the_split() -> None:
    data = table(400)
    late = micros(data) >= np.sort(micros(data))[250]
    y = np.where(late & (np.arange(400) % 5 == 0), 2, data.y).astype(np.int32)
    split = study_split(replace(data, y=y, classes=("a", "b", "c")), 3, 0.2, 0, None, 0.0)
    assert (y[split.held_out(0)] == 2).any()
    assert not (y[split.training(0, y)] == 2).any()


def with_classes_by_time() -> Dataset:
    times = micros(table(300))
    return replace(table(300), y=(times > np.median(times)).astype(np.int32))


@pytest.mark.parametrize(
    ("data", "options", "named"),
    [
        (table(300, per_day=100), (3, 0.2, 0, None, 0.0), "2 different times"),
        (table(300), (3, 0.2, 0, None, 100 * DAY), "--gap"),
        (table(300, per_group=300), (3, 0.2, 0, None, 0.0), "--group"),
        (table(60), (20, 0.2, 0, None, 0.0), "rows of 2020-0"),
        (with_classes_by_time(), (3, 0.2, 0, None, 0.0), "of class"),
        (replace(table(300), times=np.arange(300.0)), (3, 0.2, 0, None, DAY), "--gap 86400s"),
        (replace(events(), X=events().X.take(np.zeros(120, np.intp))),
         (3, 0.2, 0, None, 0.0), "1 different times"),
    ],
)  # fmt: skip
def test_impossible_split_by_time_is_refused(data, options, named) -> None:
    with pytest.raises(BadInput, match=named):
        study_split(data, *options)


def with_few_new_groups(n: int = 60_000) -> Dataset:
    data = table(n)
    ranks = np.argsort(np.argsort(micros(data)))
    return replace(data, groups=np.where(ranks < 0.8 * n, ranks, n + ranks % 100))


def with_few_new_positives(n: int = 60_000) -> Dataset:
    data = table(n)
    ranks = np.argsort(np.argsort(micros(data)))
    return replace(data, y=np.where(ranks < 0.8 * n, data.y, ranks % 100 == 0).astype(np.int32))


@pytest.mark.parametrize(
    ("data", "share"),
    [
        (table(60_000), 0.167),
        (table(60_000, per_group=60), None),
        (table(9_000), None),
        (with_few_new_groups(), None),
        (with_few_new_positives(), None),
    ],
)
def test_newest_rows_are_held_out_once_if_rows_and_groups_suffice(data, share) -> None:
    assert holdout_share(data, 0.0, 3, 0.0) == share


def test_digests_without_times_are_the_same_as_in_earlier_versions() -> None:
    """Stored studies are found by these digests, computed before data had times and ids."""
    frame = small_table(120).rename(columns={"color": "colour"})
    frame = frame.assign(patient=np.arange(120) // 3)
    data = frame_dataset(Source("", target="target", group="patient"), frame)
    split = study_split(data, 3, 0.2, 0)
    assert data.digest().startswith("8a86808fb33205356fe708bde03fd72d")
    assert split.digest().startswith("79480e06e4f1bae7c6ac9d54bed3e34e")
    assert another_split(data, split).digest().startswith("e31c81b2c81862ab252a696189f62acd")
    log, labels = small_events()
    rows, target = labels_table([labels], "labels", None)
    data = events_dataset(Source("e"), "e", events_table([log], "log")[0], rows, target)
    assert data.digest().startswith("2f60ed546df6c0db5e62b09fd35853f0")
    held_once = study_split(data, None, 0.2, 1, 0.3)
    assert held_once.digest().startswith("01c9470ac1f0d6c97232d4b3b35add31")
    one = study_split(table(), 3, 0.2, 0, None, 0.0)
    others = [replace(one, gap_seconds=1.0), replace(one, trains=~one.trains)]
    assert len({split.digest() for split in (one, *others, replace(one, trains=None))}) == 4
