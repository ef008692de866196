"""Tables of events and of labels, with columns by any of the names that MEDS and event logs use."""

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.ids import as_ids, joined_ids
from prefect_tune.tasks.data.location import Location, shards
from prefect_tune.tasks.data.table_files import GAPS, columns_called, read_table
from prefect_tune.tasks.data.timestamps import Times, end_of_day, utc_times

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "subject_id": ("subject_id", "patient_id", "person_id", "patient"),
    "code": ("code", "event_id", "event", "event_code", "concept"),
    "time": ("time", "timestamp", "datetime", "date", "event_time", "event_date"),
    "value": ("numeric_value", "value"),
    "prediction_time": (
        "prediction_time",
        "index_time",
        "index_date",
        "time",
        "timestamp",
        "datetime",
        "date",
    ),
}
"""Names by which a column of events or labels is known, the first found is taken."""

LABEL_COLUMNS = ("boolean_value", "integer_value", "categorical_value", "label", "target", "class")
"""Columns that hold a row's class, in upper or lower case; the first that is not empty is taken."""
EVENT_TEXTS = frozenset(s for n in ("subject_id", "code", "time") for s in SYNONYMS[n])
LABEL_TEXTS = frozenset(s for n in ("subject_id", "prediction_time") for s in SYNONYMS[n])
"""Columns that CSV files hold as they are meant only when read as texts: `042` is no 42."""


def read_event_tables(location: Location, texts: Collection[str]) -> Iterator[pd.DataFrame]:
    """Yield tables of events or labels, with columns called as in `texts` read as texts."""
    for shard in shards(location):
        yield read_table(shard, columns_called(shard, texts))


def event_frame(
    subject_id: pd.Series,
    time: pd.Series | None,
    code: pd.Series | str,
    value: pd.Series | float = np.nan,
) -> pd.DataFrame:
    """Make events as `events_table` takes them; without a time they hold at any time."""
    frame = pd.DataFrame({"subject_id": subject_id})
    frame["time"] = pd.Series(time, index=frame.index, dtype="datetime64[us]")
    frame["code"], frame["numeric_value"] = code, value
    return frame


def events_table(tables: Iterable[pd.DataFrame], where: str) -> tuple[pd.DataFrame, list[str]]:
    """Join tables with any of the known names into subject_id, time, code, value.

    Times without a zone are UTC; a date without a time counts as the end of that day. If all times
    of all tables are at midnight, they are dates.

    Returns:
        The events, and notes for the user.

    Raises:
        BadInput: If a needed column is missing, a time does not parse, a patient or code is empty,
            or there are no events at all.
    """
    cleaned = []
    for table in tables:
        named = name_columns(table, ("subject_id", "code", "time"), where, ("value",))
        for needed in ("subject_id", "code"):
            if named[needed].isna().any():
                raise BadInput(
                    f"{where} has {named[needed].isna().sum()} events without {needed} ("
                    f"{', '.join(GAPS[1:])} count as missing)"
                )
        value = named.get("value", pd.Series(np.nan, index=named.index))
        times = Times.of(named["time"], where)
        cleaned.append(
            pd.DataFrame(
                {
                    "subject_id": as_ids(named["subject_id"], where),
                    "time": times.utc,
                    "code": named["code"].astype(str),
                    "value": _numbers(value),
                    "is_date": times.is_date,
                    "is_midnight": times.is_midnight,
                }
            )
        )
    filled = [table for table in cleaned if len(table)]
    if not filled:
        raise BadInput(f"{where} has no events")
    ids = joined_ids([table["subject_id"] for table in filled])
    events = pd.concat(filled, ignore_index=True).assign(subject_id=ids)
    is_date, notes = events.pop("is_date"), []
    if (events.pop("is_midnight") | events["time"].isna()).all():
        if not (is_date | events["time"].isna()).all():
            notes = [f"all times of {where} are at midnight, so each counts as the end of its day"]
        is_date = events["time"].notna()
    return events.assign(time=end_of_day(events["time"], is_date)), notes


def labels_table(
    tables: Iterable[pd.DataFrame], where: str, target: str | None
) -> tuple[pd.DataFrame, pd.Series]:
    """Join tables of labels into rows (subject_id, prediction_time) and their classes.

    Args:
        tables: The label tables; empty ones are passed over.
        where: What to call them in a message.
        target: Column of the class; None takes the first of the usual names that is not empty.

    Raises:
        BadInput: If a needed column is missing, a time does not parse, or nothing is left.
    """
    filled = [table for table in tables if len(table)]
    if not filled:
        raise BadInput(f"{where} has no labels")
    table = pd.concat(filled, ignore_index=True)
    named = name_columns(table, ("subject_id", "prediction_time"), where)
    if target is None:
        lowered = {str(column).lower(): str(column) for column in reversed(list(table.columns))}
        named_so = [lowered[c] for c in LABEL_COLUMNS if c in lowered]
        candidates = [c for c in named_so if table[c].notna().any()]
        if not candidates:
            raise BadInput(
                f"{where} has no column of classes; name it with --target, or call it one of "
                f"{', '.join(LABEL_COLUMNS)}"
            )
        target = candidates[0]
    elif target not in table:
        raise BadInput(
            f"{where} has no column {target!r}; its columns: {', '.join(map(str, table.columns))}"
        )
    time = utc_times(named["prediction_time"], where, at_end_of_day=False)
    if time.isna().any():
        raise BadInput(f"{where} has {time.isna().sum()} labels without a time")
    if named["subject_id"].isna().any():
        raise BadInput(f"{where} has {named['subject_id'].isna().sum()} labels without a patient")
    subject_id = as_ids(named["subject_id"], where)
    rows = pd.DataFrame({"subject_id": subject_id, "prediction_time": time})
    return rows, table[target]


def has_event_columns(columns: Iterable[str]) -> bool:
    """Return whether a table with these columns can be one of events."""
    known = {column.lower() for column in columns}
    return all(known & set(SYNONYMS[name]) for name in ("subject_id", "code", "time"))


def name_columns(
    table: pd.DataFrame, needed: tuple[str, ...], where: str, optional: tuple[str, ...] = ()
) -> pd.DataFrame:
    """Return the needed and optional columns of a table under our names.

    Raises:
        BadInput: If a needed column is there by none of its names.
    """
    lowered = {str(column).lower(): column for column in reversed(list(table.columns))}
    found = {}
    for name in (*needed, *optional):
        match = next((lowered[s] for s in SYNONYMS[name] if s in lowered), None)
        if match is not None:
            found[name] = table[match]
        elif name in needed:
            raise BadInput(
                f"{where} has no column for {name}; expected one of "
                f"{', '.join(SYNONYMS[name])}. Its columns: {', '.join(map(str, table.columns))}"
            )
    return pd.DataFrame(found)


def _numbers(value: pd.Series) -> NDArray[np.float64]:
    """Return values as finite numbers; anything else is no value."""
    numbers = pd.to_numeric(value, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isfinite(numbers), numbers, np.nan)
