"""Differences between the data of two studies of a series, and the needs of its champion."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.flows.series.series import Changes, Names
from prefect_tune.flows.text import counted
from prefect_tune.tasks.bad_input import BadInput, shown_columns
from prefect_tune.tasks.data.dataset import Dataset, label_text
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.row_ids import (
    common_columns,
    content_ids,
    row_ids,
    settled_columns,
    value_bits,
)

_NAMED = 10
"""Most codes named in a message."""
_NEEDED_SHARE = 0.5
"""Least share of a champion's events whose codes the new data must have."""


def changes_between(old: Dataset, new: Dataset) -> Changes:
    """Return the differences of a new data set from an old one of the same kind."""
    has_key = old.groups is None and old.ids is not None
    common = () if has_key else common_columns(old, new)
    settled = settled_columns(old, new, common)
    added, removed, relabelled = _row_changes(old, new, settled)
    columns = _column_names(old), _column_names(new)
    codes = _codes(old), _codes(new)
    classes = [[label_text(label) for label in dataset.classes] for dataset in (old, new)]
    return Changes(
        added,
        removed,
        Names.missing(columns[1], set(columns[0])),
        Names.missing(columns[0], set(columns[1])),
        Names.missing(classes[1], set(classes[0])),
        Names.missing(classes[0], set(classes[1])),
        Names.missing(codes[1], set(codes[0])),
        Names.missing(codes[0], set(codes[1])),
        relabelled,
        Names.missing((c.removesuffix(".days") for c in common if c not in settled), ()),
    )


def check_needs(champion: str, known: Dataset, new: Dataset) -> None:
    """Raise `BadInput` if new data lacks columns or most codes that a champion learned from.

    `known` is the data of the champion. Single codes come and go, so they are no reason.
    """
    columns = set(_column_names(new))
    if lost := [name for name in _column_names(known) if name not in columns]:
        notes = [note for note in new.notes if any(name in note for name in lost)]
        raise BadInput(
            f"the data lacks {counted(len(lost), 'column')} that champion {champion} reads: "
            f"{shown_columns(lost)}" + "".join(f" ({note})" for note in notes[:1]),
            remedy="add them to the data, or start another series with another --series name",
        )
    if isinstance(known.X, EventRows) and isinstance(new.X, EventRows):
        _check_codes(champion, known.X, new.X)


def _check_codes(champion: str, known: EventRows, new: EventRows) -> None:
    counts = known.events["code"].value_counts()
    lost = counts[~counts.index.isin(new.codes)]
    share = 1 - lost.sum() / max(counts.sum(), 1)
    if share < _NEEDED_SHARE:
        names = [str(code) for code in lost.index[:_NAMED]]
        raise BadInput(
            f"the data lacks {len(lost):,} of {len(counts):,} codes of champion {champion}, with "
            f"{1 - share:.0%} of its events: {shown_columns(names)}",
            remedy="check the format and vocabulary of the data, or start another series with "
            "another --series name",
        )


def _column_names(dataset: Dataset) -> list[str]:
    reader = dataset.row_reader
    return [] if reader is None else [column.name for column in reader.columns]


def _codes(dataset: Dataset) -> list[str]:
    return dataset.X.codes if isinstance(dataset.X, EventRows) else []


def _row_changes(old: Dataset, new: Dataset, columns: Sequence[str]) -> tuple[int, int, int]:
    """Return the numbers of added rows, of removed rows, and of rows with another target.

    Equal rows count as often as they occur. `columns` identify the rows of a table without a key.
    """
    if isinstance(old.X, EventRows) and isinstance(new.X, EventRows):
        both = [_event_row_hashes(old.X), _event_row_hashes(new.X)]
    elif isinstance(old.X, pd.DataFrame) and isinstance(new.X, pd.DataFrame):
        both = [content_ids(one, columns) if columns else row_ids(one) for one in (old, new)]
    else:
        return len(new), len(old), 0
    added, removed = _differences(*both)
    labelled = [
        rows ^ value_bits(_targets(dataset)) for rows, dataset in zip(both, (old, new), strict=True)
    ]
    return added, removed, _differences(*labelled)[0] - added


def _differences(old: NDArray[np.uint64], new: NDArray[np.uint64]) -> tuple[int, int]:
    """Return how many hashes were added and removed."""
    values, place = np.unique(np.concatenate((old, new)), return_inverse=True)
    parts = np.split(place, [len(old)])
    n_old, n_new = (np.bincount(part, minlength=len(values)) for part in parts)
    return int(np.maximum(n_new - n_old, 0).sum()), int(np.maximum(n_old - n_new, 0).sum())


def _targets(dataset: Dataset) -> "pd.Series[Any]":
    """Return the name of the class, or the number, of each row, shape (n,)."""
    names = pd.Index([label_text(label) for label in dataset.classes])
    if not dataset.classes:
        return pd.Series(dataset.y)
    return pd.Series(pd.Categorical.from_codes(dataset.y.astype(np.intp), names))


def _event_row_hashes(X: EventRows) -> NDArray[np.uint64]:
    """Return a hash of each row's patient, prediction time and events, shape (n,)."""
    of_event = _hashes(X.events[["time", "code", "value"]])
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(of_event, dtype=np.uint64)])
    of_row = _hashes(X.rows.astype({"subject_id": str}))
    return np.bitwise_xor(of_row, np.subtract(sums[X.stop], sums[X.start]), dtype=np.uint64)


def _hashes(frame: pd.DataFrame) -> NDArray[np.uint64]:
    return np.asarray(pd.util.hash_pandas_object(frame, index=False), dtype=np.uint64)
