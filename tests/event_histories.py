"""Patients with histories of events, and features that folds construct from them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from inputs import event_rows
from studies import store_of

from prefect_tune.storage.index import Entry
from prefect_tune.tasks.catalogue.event_windows import EventWindows
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial import partitions, shared_blocks
from prefect_tune.tasks.trial.shared_blocks import STEP, SharedBlocks

__all__ = [
    "END", "EVERY", "PARENTS", "changed", "construct", "construct_all", "construct_in_process",
    "entries", "fold_of", "histories", "most_rows",
]  # fmt: skip

CODES = ("A", "B//1", "B//2", "B//2/x", "LAB//k")
EVERY = {"aggregations": "count_sum_mean", "levels": "all", "windows": "30"}
END = pd.Timestamp(2020, 6, 1)
PARENTS = pd.DataFrame(
    {
        "code": ["B//1", "B//2", "all", "group"],
        "description": ["", "", "", ""],
        "parents": [["all", "group"], ["all", "group"], [], ["all"]],
    }
)


def histories(patients: Sequence[int]) -> EventRows:
    """Two rows of each patient, whose events depend on its number alone; in any order of rows."""
    events, rows = [], []
    for patient in patients:
        rng = np.random.default_rng(patient)
        codes = CODES if patient < 1000 else ("A//new", *CODES)  # sorted before most of the others
        events += [(patient, END - pd.Timedelta(days=9000), "MEDS_BIRTH", np.nan)] * (patient % 2)
        events.append((patient, pd.NaT, f"SEX//{patient % 3 % 2}", np.nan))
        for _ in range(rng.integers(3, 12)):
            time = END - pd.Timedelta(days=float(rng.integers(0, 500)))
            value = rng.choice([np.nan, 0.0, -1.5, 3.0])
            events.append((patient, time, rng.choice(codes), value))
        rows += [(patient, END), (patient, END - pd.Timedelta(days=20 + patient % 7))]
    mixed = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    return event_rows(events, mixed, PARENTS)


def changed(X: EventRows, patients: Sequence[int], code: str = "A") -> EventRows:
    """The same data with one more event of some patients."""
    new = [(patient, END - pd.Timedelta(days=3), code, 2.0) for patient in patients]
    events = X.events.astype({"code": str})
    more = pd.DataFrame(new, columns=events.columns)
    more["time"] = more["time"].astype(events["time"].dtype)
    return EventRows.build(pd.concat([events, more]) if new else events, X.rows, X.code_table)


def fold_of(
    context: StudyContext, X: EventRows, rows: np.ndarray
) -> tuple[EventRows, EventRows, SharedBlocks]:
    """Some rows and all others, with one fold's shared blocks."""
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


def construct_all(context: StudyContext, X: EventRows, **arguments: Any) -> list[np.ndarray]:
    """Columns of the training and held-out rows of a fold, which must be those without a cache."""
    rows = most_rows(X)
    train, held_out, shared = fold_of(context, replace(X, of_events={}), rows)
    found = construct(train, held_out, **arguments)
    alone = construct(X.take(rows), X.take(held_out.positions), **arguments)
    shared.release()
    assert all(map(np.array_equal, found, alone))
    return found


def construct_in_process(context: StudyContext, n_patients: int, patients: Sequence[int]) -> None:
    """Construct a night on which some patients have changed; all of them are stored."""
    partitions.EVENTS_PER_PARTITION, shared_blocks.LEAST_KEPT_EVENTS = 512, 0
    partitions.MOST_LOOSE_EVENTS = 0
    construct_all(context, changed(histories(range(n_patients)), patients), **EVERY)
    store_of(context).close()
