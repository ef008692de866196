"""Differences between the data of two studies of a series."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.flows.wording.text import counted
from prefect_tune.storage.series import Changes
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
"""Most columns named that differ in nearly all rows."""


def changes_between(old: Dataset, new: Dataset) -> Changes:
    """Return the differences of a new data set from an old one of the same kind."""
    has_key = old.groups is None and old.ids is not None
    common = () if has_key else common_columns(old, new)
    settled = settled_columns(old, new, common)
    added, removed, relabelled = _row_changes(old, new, settled)
    columns = _column_names(old), _column_names(new)
    classes = [{label_text(label) for label in dataset.classes} for dataset in (old, new)]
    differing = [name.removesuffix(".days") for name in common if name not in settled]
    return Changes(
        rows_added=added,
        rows_removed=removed,
        targets_changed=relabelled,
        columns_added=len(columns[1] - columns[0]),
        columns_removed=len(columns[0] - columns[1]),
        classes_added=len(classes[1] - classes[0]),
        classes_removed=len(classes[0] - classes[1]),
        columns_differing=tuple(differing[:_NAMED]),
    )


def check_needs(champion: str, known: Dataset, new: Dataset) -> None:
    """Raise `BadInput` if new data lacks columns that a champion learned from `known` data."""
    if lost := sorted(_column_names(known) - _column_names(new)):
        notes = [note for note in new.notes if any(name in note for name in lost)]
        raise BadInput(
            f"the data lacks {counted(len(lost), 'column')} that champion {champion} reads: "
            f"{shown_columns(lost)}" + "".join(f" ({note})" for note in notes[:1]),
            remedy="add them to the data, or start another series with another --series name",
        )


def _column_names(dataset: Dataset) -> set[str]:
    reader = dataset.row_reader
    return set() if reader is None else {column.name for column in reader.columns}


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
    before, now = pd.Series(old).value_counts(), pd.Series(new).value_counts()
    growth = now.sub(before, fill_value=0)
    return int(growth.clip(lower=0).sum()), int(-growth.clip(upper=0).sum())


def _targets(dataset: Dataset) -> "pd.Series[Any]":
    """Return the name of the class, or the number, of each row, shape (n,)."""
    if not dataset.classes:
        return pd.Series(dataset.y)
    names = pd.Index([label_text(label) for label in dataset.classes])
    return pd.Series(pd.Categorical.from_codes(dataset.y.astype(np.intp), names))


def _event_row_hashes(X: EventRows) -> NDArray[np.uint64]:
    """Return a hash of each row's patient, prediction time and events, shape (n,)."""
    of_event = _hashes(X.events[["time", "code", "value"]])
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(of_event, dtype=np.uint64)])
    of_row = _hashes(X.rows.astype({"subject_id": str}))
    return np.bitwise_xor(of_row, np.subtract(sums[X.stop], sums[X.start]), dtype=np.uint64)


def _hashes(frame: pd.DataFrame) -> NDArray[np.uint64]:
    return np.asarray(pd.util.hash_pandas_object(frame, index=False), dtype=np.uint64)
