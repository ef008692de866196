"""Patient events: (patient, time, code, value), cut for each row at the time of its prediction.

Takes tables of events by any of the names that MEDS and plain event logs use, with a table of
labels. What happened after a row's prediction time does not exist for it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.files import GAPS
from prefect_tune.tasks.data.patient_ids import as_ids, joined_ids, like_ids
from prefect_tune.tasks.data.timestamps import Times, end_of_day, utc_times

__all__ = [
    "EventRows",
    "event_frame",
    "events_table",
    "has_event_columns",
    "labels_table",
    "name_columns",
    "positions",
]

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
"""Columns that hold a row's class, in letters of any size; the first that is not empty is taken."""
EVENT_TEXTS = frozenset(s for n in ("subject_id", "code", "time") for s in SYNONYMS[n])
LABEL_TEXTS = frozenset(s for n in ("subject_id", "prediction_time") for s in SYNONYMS[n])
"""Columns that CSV files hold as they are meant only when read as texts: `042` is no 42."""
_BIRTH = "MEDS_BIRTH"


@dataclass(frozen=True)
class EventRows:
    """Rows of a data set, each with the events of one patient up to one time.

    Attributes:
        events: Columns subject_id, time (empty for what holds at any time), code and value (empty
            where there is none); the events of a patient are contiguous and in order of time.
        rows: Columns subject_id and prediction_time, n rows.
        start: First event of each row, shape (n,).
        stop: One past the last event of each row at or before its prediction time, shape (n,).
    """

    events: pd.DataFrame
    rows: pd.DataFrame
    start: NDArray[np.int64]
    stop: NDArray[np.int64]

    @classmethod
    def build(cls, events: pd.DataFrame, rows: pd.DataFrame) -> Self:
        """Sort events by patient and time and find those of each row.

        Raises:
            BadInput: If a row's patient has no events, or none at or before the row's time but
                birth and what holds at any time.
        """
        ordered = events.sort_values(["subject_id", "time"], na_position="first", kind="stable")
        rows = rows.assign(subject_id=like_ids(rows["subject_id"], events["subject_id"]))
        start, stop = _bounds(ordered, rows)  # names patients as the user wrote them
        events, rows = canonical(ordered), canonical(rows)
        is_birth = [str(code).startswith(_BIRTH) for code in events["code"].cat.categories]
        is_given = np.array(is_birth)[events["code"].cat.codes] | events["time"].isna().to_numpy()
        given_before = np.concatenate([[0], np.cumsum(is_given)])
        n_given = given_before[stop] - given_before[start]
        empty = rows["subject_id"][stop - start == n_given]
        if len(empty):
            raise BadInput(
                f"{len(empty)} of {len(rows)} labels have no event of their patient at or before "
                f"their time (birth aside), for instance patient {empty.iloc[0]}; drop these "
                "labels or bring the patients' events"
            )
        return cls(events, rows, start, stop)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and different codes."""
        return len(self.start), len(self.codes)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def codes(self) -> list[str]:
        """The vocabulary, sorted."""
        return list(self.events["code"].cat.categories)

    def take(self, rows: NDArray[np.intp]) -> Self:
        """Some of the rows, in that order; the events are shared."""
        taken = self.rows.iloc[rows].reset_index(drop=True)
        return type(self)(self.events, taken, self.start[rows], self.stop[rows])

    def frames(self) -> dict[str, pd.DataFrame]:
        """All that it holds, as frames by name."""
        return {"events": self.events, "rows": self.rows}

    @classmethod
    def from_frames(cls, frames: Mapping[str, Any]) -> Self:
        """The inverse of `frames`."""
        return cls(frames["events"], frames["rows"], *_bounds(frames["events"], frames["rows"]))


def event_frame(
    subject_id: pd.Series,
    time: pd.Series | None,
    code: pd.Series | str,
    value: pd.Series | float = np.nan,
) -> pd.DataFrame:
    """Events as `events_table` takes them; without a time they hold at any time."""
    frame = pd.DataFrame({"subject_id": subject_id})
    frame["time"] = pd.Series(time, index=frame.index, dtype="datetime64[us]")
    frame["code"], frame["numeric_value"] = code, value
    return frame


def positions(start: NDArray[np.int64], stop: NDArray[np.int64]) -> NDArray[np.int64]:
    """Every position from each start to before its stop, one piece after the other."""
    lengths = stop - start
    made = np.repeat(start - (np.cumsum(lengths) - lengths), lengths)
    made += np.arange(len(made))
    return made


def events_table(tables: Iterable[pd.DataFrame], where: str) -> tuple[pd.DataFrame, list[str]]:
    """Events as columns subject_id, time, code, value from tables with any of the known names.

    Times without a zone are UTC; a date without a time counts as the end of that day. If all times
    of all tables are at midnight, they are dates.

    Returns:
        The events, and what was done that a user should know.

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
                    f"{where} has {named[needed].isna().sum()} events without {needed} (what is "
                    f"called {', '.join(GAPS[1:])} is a gap)"
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
    """Rows (subject_id, prediction_time) and their classes.

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
    """Whether a table with these columns can be one of events."""
    known = {column.lower() for column in columns}
    return all(known & set(SYNONYMS[name]) for name in ("subject_id", "code", "time"))


def name_columns(
    table: pd.DataFrame, needed: tuple[str, ...], where: str, optional: tuple[str, ...] = ()
) -> pd.DataFrame:
    """The needed and optional columns of a table under our names.

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
                f"{where} has no column for {name}; it would be called one of "
                f"{', '.join(SYNONYMS[name])}. Its columns: {', '.join(map(str, table.columns))}"
            )
    return pd.DataFrame(found)


def _numbers(value: pd.Series) -> NDArray[np.float64]:
    """Values as numbers; what is none, and what is infinite, is no value."""
    numbers = pd.to_numeric(value, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _bounds(
    events: pd.DataFrame, rows: pd.DataFrame
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and one past the last event of each row, shape (n,) each."""
    patients = pd.Index(events["subject_id"].unique())
    boundaries = np.flatnonzero(np.diff(patients.get_indexer(events["subject_id"]), prepend=-1))
    ends = np.append(boundaries[1:], len(events))
    patient = patients.get_indexer(rows["subject_id"])
    if (patient < 0).any():
        unknown = rows["subject_id"][patient < 0]
        raise BadInput(
            f"{len(unknown)} labels are of patients without any event, for instance patient "
            f"{unknown.iloc[0]}; drop these labels or bring the patients' events"
        )
    times = events["time"].to_numpy().astype(np.int64)  # an empty time is the smallest number
    until = rows["prediction_time"].to_numpy().astype(np.int64)
    start, end = boundaries[patient], ends[patient]
    stop = np.array(
        [
            a + np.searchsorted(times[a:b], t, side="right")
            for a, b, t in zip(start, end, until, strict=True)
        ],
        dtype=np.int64,
    )
    return start.astype(np.int64), stop
