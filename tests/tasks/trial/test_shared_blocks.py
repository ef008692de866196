"""Blocks of events shared by the folds and configurations of a data set."""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Barrier
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hammering import run_in_threads
from inputs import event_rows
from studies import context_of, store_of

from prefect_tune.storage.index import Entry, pinned_keys
from prefect_tune.tasks.catalogue import event_windows
from prefect_tune.tasks.catalogue.event_windows import LEVELS, Block, EventWindows
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.fitting.recipe import TRANSFORMS
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial import shared_blocks
from prefect_tune.tasks.trial.node import summary_of_rows
from prefect_tune.tasks.trial.shared_blocks import STEP, SharedBlocks

CODES = ("A", "B//1", "B//2", "B//2/x", "LAB//k")
END = pd.Timestamp(2020, 6, 1)
PARENTS = pd.DataFrame({"code": ["B//1", "B//2", "all", "group"], "description": [""] * 4})
PARENTS["parents"] = [["all", "group"], ["all", "group"], [], ["all"]]


@pytest.fixture
def context(tmp_path) -> StudyContext:
    return context_of(tmp_path)


@pytest.fixture(scope="module", name="X")
def of_sixty_patients() -> EventRows:
    return histories(range(60))


def histories(patients: Sequence[int]) -> EventRows:
    """Return two rows per patient, whose events depend only on the patient's number."""
    events, rows = [], []
    for patient in patients:
        rng = np.random.default_rng(patient)
        events += [(patient, END - pd.Timedelta(days=9000), "MEDS_BIRTH", np.nan)] * (patient % 2)
        events.append((patient, pd.NaT, f"SEX//{patient % 3 % 2}", np.nan))
        for _ in range(rng.integers(3, 12)):
            time = END - pd.Timedelta(days=float(rng.integers(0, 500)))
            value = rng.choice([np.nan, 0.0, -1.5, 3.0])
            events.append((patient, time, rng.choice(CODES), value))
        rows += [(patient, END), (patient, END - pd.Timedelta(days=20 + patient % 7))]
    mixed = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    return event_rows(events, mixed, PARENTS)


def fold_of(
    context: StudyContext, X: EventRows, rows: np.ndarray
) -> tuple[EventRows, EventRows, SharedBlocks]:
    """Return some rows and all other rows, with the shared blocks of a fold."""
    y = np.arange(len(X), dtype=np.int32) % 2
    digest = Dataset("d", "events", X, y, (False, True)).digest()
    context = replace(context, problem=replace(context.problem, dataset=digest))
    shared = SharedBlocks(store_of(context), X, context, 3 * len(X) // 4)
    others = np.setdiff1d(np.arange(len(X)), rows)
    train, held_out = (
        replace(X.take(part), positions=part, shared=shared) for part in (rows, others)
    )
    return train, held_out, shared


def construct(train: EventRows, *others: EventRows, **arguments: Any) -> list[np.ndarray]:
    made = EventWindows(**{"min_share": 0.05, **arguments}).fit(train)
    return [made.transform(X).toarray() for X in (train, *others)]


def entries(context: StudyContext) -> Mapping[str, Entry]:
    store = store_of(context)
    store.index.usage.flush()
    return {e.key: e for e in store.index.select(step=STEP)}


def most_rows(X: EventRows) -> np.ndarray:
    return np.flatnonzero(np.arange(len(X)) % 4 > 0)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Block]:
    """Record the blocks that are made for all rows."""
    found, make = list[Block](), shared_blocks.make_blocks

    def noted(X: EventRows, wanted: Sequence[Block], vocabulary: Any) -> Any:
        found.extend(wanted)
        return make(X, wanted, vocabulary)

    monkeypatch.setattr(shared_blocks, "make_blocks", noted)
    return found


@pytest.mark.parametrize("levels", LEVELS)
def test_shared_blocks_give_the_same_columns_as_separate_blocks(
    context, X, monkeypatch, levels
) -> None:
    rows = most_rows(X)
    arguments = {"aggregations": "every", "levels": levels, "windows": "30_365"}
    train, held_out, _ = fold_of(context, X, rows)
    alone = construct(X.take(rows), X.take(held_out.positions), **arguments)
    monkeypatch.setattr(event_windows, "NAMES_OF_PIECE", 128)
    for _ in range(2):  # made, then served
        found = construct(train, held_out, **arguments)
        assert all(map(np.array_equal, found, alone))
        train, held_out, _ = fold_of(context, X, rows)


def test_other_folds_and_configurations_make_only_new_blocks(context, X) -> None:
    train, _, _ = fold_of(context, X, most_rows(X))
    construct(train, aggregations="count_sum_mean")
    before = entries(context)
    other, _, _ = fold_of(context, X, np.flatnonzero(np.arange(len(X)) % 4 != 1))
    construct(other, aggregations="count_sum_mean", scaling="tfidf", min_share=0.2)
    assert entries(context).keys() == before.keys()
    construct(other, aggregations="count_recency_sum_mean")
    new = [entry for key, entry in entries(context).items() if key not in before]
    assert sorted(entry.algorithm for entry in new) == [
        "recency", "recency, prefixes 1", "recency, prefixes 2",
    ]  # fmt: skip


def test_another_data_set_has_separate_blocks(context, X) -> None:
    other = histories([*range(59), 1000])
    construct(fold_of(context, X, most_rows(X))[0])
    before = entries(context)
    found = construct(fold_of(context, other, most_rows(other))[0])
    assert np.array_equal(found[0], construct(other.take(most_rows(other)))[0])
    assert len(entries(context)) == 2 * len(before)


def test_few_rows_get_separate_blocks_unless_shared_blocks_exist(context, X) -> None:
    few, _, _ = fold_of(context, X, np.arange(20))
    alone = construct(X.take(np.arange(20)))
    assert np.array_equal(construct(few)[0], alone[0])
    assert not entries(context)
    construct(fold_of(context, X, most_rows(X))[0])
    few, _, shared = fold_of(context, X, np.arange(20))
    assert np.array_equal(construct(few)[0], alone[0])
    assert shared._entries
    for n_rows, is_shared in ((8, True), (7, False)):  # of 90 training rows
        few, _, shared = fold_of(context, X, np.arange(n_rows))
        assert (shared.blocks(few, [Block("count")]) is not None) == is_shared


def test_no_block_is_computed_twice_even_with_a_small_cache(context, X, made) -> None:
    rows, store = most_rows(X), store_of(context)
    alone = construct(X.take(rows))[0]
    train, _, shared = fold_of(context, X, rows)
    construct(train)
    shared.release()
    size = sum(entry.size_bytes for entry in entries(context).values())
    store.set_budget(size // 2)
    made.clear()
    train, _, shared = fold_of(replace(context, cache_area="another"), X, rows)
    assert np.array_equal(construct(train)[0], alone)
    assert len(made) == len(set(made))
    with store.database.read() as connection:
        assert set(connection.execute(pinned_keys()).scalars())
    shared.release()
    with store.database.read() as connection:
        assert not set(connection.execute(pinned_keys()).scalars())


def test_rows_changed_by_a_step_get_separate_blocks(context, X) -> None:
    train, _, _ = fold_of(context, X, most_rows(X))
    construct(train)
    cut = replace(train, stop=train.start + 1)
    alone = replace(X.take(most_rows(X)), stop=train.start + 1)
    assert np.array_equal(construct(cut)[0], construct(alone)[0])
    assert pickle.loads(pickle.dumps(train)).shared is None


def test_concurrent_workers_compute_shared_blocks_once(context, X, made) -> None:
    together = Barrier(2)

    def work() -> None:
        train, _, _ = fold_of(context, X, most_rows(X))
        together.wait()
        construct(train)

    run_in_threads(work, work)
    assert len(made) == len(set(made)) == len(entries(context))


@pytest.mark.parametrize("has_parents", [False, True])
def test_levels_that_need_parents_are_replaced_if_codes_have_no_parents(has_parents) -> None:
    """A table of descriptions alone names no parents."""
    X = histories(range(9))
    if not has_parents:
        X = replace(X, code_table=PARENTS.assign(parents=[[]] * len(PARENTS)))
    y = np.arange(len(X)) % 2
    summary = summary_of_rows(Dataset("d", "events", X, y, (False, True)), 9)
    effective = [TRANSFORMS["levels_there"](level, summary) for level in LEVELS]
    others = ["code", "prefixes", "both", "code", "both"]
    assert effective == (list(LEVELS) if has_parents else others)
