"""Blocks of events that folds and configurations share, by partition of patients."""

import pickle
from dataclasses import replace
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pandas as pd
import pytest
from event_histories import END, PARENTS, construct, entries, fold_of, histories, most_rows
from inputs import event_rows
from scipy import sparse
from studies import context_of, store_of

from prefect_tune.storage.artifacts import MemoryTier
from prefect_tune.storage.index import pinned_keys
from prefect_tune.tasks.catalogue.event_blocks import Block
from prefect_tune.tasks.catalogue.event_windows import LEVELS, EventWindows
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.fitting.recipe import effective_value
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial import partitions, shared_blocks
from prefect_tune.tasks.trial.node import summary_of_rows
from prefect_tune.tasks.trial.shared_blocks import SharedBlocks, partitions_of


@pytest.fixture
def context(tmp_path, monkeypatch: pytest.MonkeyPatch) -> StudyContext:
    """A study whose partitions have some sixteen patients."""
    monkeypatch.setattr(partitions, "EVENTS_PER_PARTITION", 128)
    return context_of(tmp_path)


@pytest.mark.parametrize("levels", LEVELS)
def test_shared_blocks_give_the_columns_that_a_fold_makes_alone(context, levels) -> None:
    X = histories(range(60))
    assert len(partitions_of(X)) > 2
    rows = most_rows(X)
    arguments = {"aggregations": "every", "levels": levels, "windows": "30_365"}
    train, held_out, _ = fold_of(context, X, rows)
    alone = construct(X.take(rows), X.take(held_out.positions), **arguments)
    for _ in range(2):  # made, then served
        found = construct(train, held_out, **arguments)
        assert all(map(np.array_equal, found, alone))
        train, held_out, _ = fold_of(context, X, rows)


def test_another_fold_and_configuration_make_only_what_is_new(context) -> None:
    X = histories(range(60))
    train, _, _ = fold_of(context, X, most_rows(X))
    construct(train, aggregations="count_sum_mean")
    before = entries(context)
    other, _, _ = fold_of(context, X, np.flatnonzero(np.arange(len(X)) % 4 != 1))
    construct(other, aggregations="count_sum_mean", scaling="tfidf", min_share=0.2)
    assert entries(context).keys() == before.keys()
    construct(other, aggregations="count_recency_sum_mean")
    new = [e for key, e in entries(context).items() if key not in before]
    n_levels = 3  # codes and two levels of prefixes
    assert len(new) == n_levels * len(partitions_of(X))


def test_a_block_is_read_once_for_all_folds_unless_it_is_large(context, monkeypatch) -> None:
    X, store = histories(range(60)), store_of(context)
    construct(fold_of(context, X, most_rows(X))[0])
    read, _of_partition = list[Any](), SharedBlocks._of_partition
    monkeypatch.setattr(
        SharedBlocks, "_of_partition", lambda *a: read.append(a[1:]) or _of_partition(*a)
    )
    for most_bytes in (1 << 20, 0):
        monkeypatch.setattr(store, "memory", MemoryTier(most_bytes))
        read.clear()
        for remainder in (1, 2):
            rows = np.flatnonzero(np.arange(len(X)) % 4 != remainder)
            train, held_out, _ = fold_of(context, X, rows)
            construct(train, held_out)
        assert (max(map(read.count, read)) == 1) == (most_bytes > 0)


def test_blocks_of_a_partition_survive_where_patients_of_others_change(context) -> None:
    X = histories(range(60))
    construct(fold_of(context, X, most_rows(X))[0])
    before = entries(context)
    last = partitions_of(X)[-1].X.rows["subject_id"]
    stay = [patient for patient in range(60) if patient != last.iloc[0]]
    changed = histories([*stay, 1000])
    kept = [p.digest for p in partitions_of(changed)]
    assert sum(p.digest in kept for p in partitions_of(X)) == len(partitions_of(X)) - 1
    found = construct(fold_of(context, changed, most_rows(changed))[0])
    assert all(map(np.array_equal, found, construct(changed.take(most_rows(changed)))))
    n_blocks = len(before) // len(partitions_of(X))
    assert len(entries(context)) - len(before) <= 2 * n_blocks


@pytest.mark.usefixtures("context")
@pytest.mark.parametrize("change", ["value", "time", "code", "label"])
def test_a_change_of_a_patient_is_another_partition(change) -> None:
    X = histories(range(30))
    events = X.events.astype({"code": str})
    rows = X.rows.copy()
    row = events.index[events["subject_id"] == 3][-1]
    if change == "label":
        of_patient = rows.index[rows["subject_id"] == 3]
        rows.loc[of_patient[0], "prediction_time"] -= pd.Timedelta(hours=1)
    else:
        new = {"value": 77.0, "code": "A", "time": events["time"][row] - pd.Timedelta(hours=1)}
        events.loc[row, change] = new[change]
        if change == "code":
            events.loc[row - 1, change] = "B//1"
    other = EventRows.build(events, rows, PARENTS)
    digests = {p.digest for p in partitions_of(X)}
    is_new = [p.digest not in digests for p in partitions_of(other)]
    assert sum(is_new) == 1


def test_few_rows_make_their_own_blocks_unless_all_are_there(context) -> None:
    X = histories(range(60))
    few, _, _ = fold_of(context, X, np.arange(20))
    alone = construct(X.take(np.arange(20)))
    assert np.array_equal(construct(few)[0], alone[0])
    assert not entries(context)
    construct(fold_of(context, X, most_rows(X))[0])
    few, _, shared = fold_of(context, X, np.arange(20))
    assert np.array_equal(construct(few)[0], alone[0])
    assert shared._entries


def test_a_twelfth_of_the_training_rows_takes_shared_blocks_and_fewer_do_not(context) -> None:
    X = histories(range(60))
    construct(fold_of(context, X, most_rows(X))[0])
    for n_rows, is_shared in ((8, True), (7, False)):  # of 90 training rows
        few, _, shared = fold_of(context, X, np.arange(n_rows))
        assert (shared.blocks(few, [Block("count")]) is not None) == is_shared


def test_a_cache_that_is_too_small_makes_no_block_twice(context, monkeypatch) -> None:
    X = histories(range(60))
    rows, store = most_rows(X), store_of(context)
    alone = construct(X.take(rows))[0]
    train, _, shared = fold_of(context, X, rows)
    construct(train)
    shared.release()
    size = sum(entry.size_bytes for entry in entries(context).values())
    store.set_budget(size // 2)
    context = replace(context, cache_area="another")
    made, make = list[Any](), shared_blocks.make_blocks
    monkeypatch.setattr(
        shared_blocks, "make_blocks", lambda X, b, v: made.append(len(X)) or make(X, b, v)
    )
    train, _, shared = fold_of(context, X, rows)
    assert np.array_equal(construct(train)[0], alone)
    assert len(made) == len(partitions_of(X))
    with store.database.read() as connection:
        assert set(connection.execute(pinned_keys()).scalars())
    shared.release()
    with store.database.read() as connection:
        assert not set(connection.execute(pinned_keys()).scalars())


def test_damaged_blocks_are_made_again(context, caplog) -> None:
    X = histories(range(60))
    rows = most_rows(X)
    construct(fold_of(context, X, rows)[0])
    store = store_of(context)
    entry = next(e for e in entries(context).values() if e.algorithm == "count")
    folder = store.files.path("cache")
    for path in store.files.filesystem.find(folder):
        if entry.place in path and path.endswith(".arrow"):
            store.files.filesystem.pipe_file(path, b"no block")
    X = replace(X, of_events={})  # another worker
    store.memory.drop(entry.place)
    found = construct(fold_of(context, X, rows)[0])
    assert "will be recomputed" in caplog.text
    assert np.array_equal(found[0], construct(X.take(rows))[0])


def test_parents_depend_on_codes_elsewhere(context, monkeypatch) -> None:
    """A code of another partition gives a parent its second code, so it gets a column here too."""
    monkeypatch.setattr(partitions, "EVENTS_PER_PARTITION", 1)  # a patient each
    found = []
    for last in ("A", "B"):
        events = [(1, "2020-01-01", "A", 1.0), (1, "2020-01-02", "C", 1.0)]
        events.append((50, "2020-01-01", last, 1.0))
        table = pd.DataFrame(
            {"code": ["A", "B", "C", "P"], "description": "", "parents": [["P"], ["P"], [], []]}
        )
        X = event_rows(events * 2, [(1, END), (50, END), (50, END)], table)
        train, _, _ = fold_of(context, X, np.arange(3))
        made = EventWindows(levels="parents").fit(train)
        found.append([name for name in made.get_feature_names_out() if "below" in name])
        alone = construct(X.take(np.arange(3)), levels="parents")[0]
        assert np.array_equal(construct(train, levels="parents")[0], alone)
    assert not found[0]
    assert found[1]


def test_rows_that_a_step_has_changed_make_their_own_blocks(context) -> None:
    X = histories(range(60))
    train, _, _ = fold_of(context, X, most_rows(X))
    construct(train)
    cut = replace(train, stop=train.start + 1)
    alone = replace(X.take(most_rows(X)), stop=train.start + 1)
    assert np.array_equal(construct(cut)[0], construct(alone)[0])
    assert pickle.loads(pickle.dumps(train)).shared is None


def test_a_partition_ends_after_so_many_events_whatever_the_ids(monkeypatch) -> None:
    X = histories(range(60))
    monkeypatch.setattr(partitions, "EVENTS_PER_PARTITION", 256)
    largest = []
    for most in (1000, 1):
        monkeypatch.setattr(partitions, "_MOST_PARTS", most)
        parts = [part.X for part in partitions_of(replace(X, of_events={}))]
        assert sum(map(len, parts)) == len(X)
        largest.append(max((part.stop - part.start).sum() for part in parts))
    n_of_a_patient = 2 * (X.stop - X.start).max()
    assert largest[1] <= 256 + n_of_a_patient < largest[0]


def test_workers_that_need_the_same_blocks_make_them_once(context, monkeypatch) -> None:
    X = histories(range(60))
    made, together = [], Barrier(2)
    make = shared_blocks.make_blocks

    def counted(*arguments: Any) -> Any:
        made.append(len(arguments[1]))
        return make(*arguments)

    monkeypatch.setattr(shared_blocks, "make_blocks", counted)

    def work() -> None:
        train, _, _ = fold_of(context, X, most_rows(X))
        together.wait()
        construct(train)

    threads = [Thread(target=work) for _ in "12"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == len(partitions_of(X))
    assert sum(made) == len(entries(context))


def test_blocks_can_be_looked_at_and_have_no_columns_of_other_partitions(context) -> None:
    X = histories(range(60))
    construct(fold_of(context, X, most_rows(X))[0], levels="code")
    store = store_of(context)
    widths = set()
    for entry in entries(context).values():
        block = store.read(entry, [shared_blocks.PART])[shared_blocks.PART]
        lineage = store.provenance(entry)
        assert set(lineage["block"]) == {"aggregation", "window", "level"}
        if sparse.issparse(block):
            widths.add(block.shape[1])
    of_partitions = {len(partition.codes) for partition in partitions_of(X)}
    assert widths <= of_partitions
    assert min(widths) < len(X.codes)


@pytest.mark.parametrize("has_parents", [False, True])
def test_levels_of_parents_are_others_where_codes_have_parents(has_parents) -> None:
    """A table of descriptions alone names no parents."""
    X = histories(range(9))
    if not has_parents:
        X = replace(X, code_table=PARENTS.assign(parents=[[]] * len(PARENTS)))
    y = np.arange(len(X)) % 2
    summary = summary_of_rows(Dataset("d", "events", X, y, (False, True)), 9)
    effective = [effective_value("levels_there", level, summary) for level in LEVELS]
    others = ["code", "prefixes", "both", "code", "both"]
    assert effective == (list(LEVELS) if has_parents else others)
