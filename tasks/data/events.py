"""Patient events (patient, time, code, value), up to the prediction time of each row.

A row has no events after its prediction time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.code_table import PARENTS, as_frames, from_frames
from prefect_tune.tasks.data.row_reader import EXACT, without_point_zero

_BIRTH = "MEDS_BIRTH"

Made = TypeVar("Made")


class BlockSource(Protocol):
    """Source of feature blocks that can be shared between fits on the same data set."""

    def blocks(self, X: "EventRows", wanted: Sequence[Any]) -> Mapping[Any, Any] | None:
        """Return blocks for the given rows; None if computing them separately is cheaper."""


@dataclass(frozen=True)
class EventRows:
    """Rows of a data set, each with the events of one patient up to a prediction time.

    Attributes:
        events: Columns subject_id, time (empty for static events), code and value (may be empty).
            Events of a patient are contiguous and sorted by time.
        rows: Columns subject_id and prediction_time, n rows.
        start: Position of the first event of each row, shape (n,).
        stop: Position after the last event of each row, which is at or before the prediction time,
            shape (n,).
        code_table: Descriptions and ancestors of the codes (see `code_table.code_table`), or None.
            Prediction data have their own table, so fitted estimators keep the ancestors from
            training.
        positions: Positions of the rows in the data set, shape (n,); used if `shared` is set.
        shared: Source of blocks shared by trials; None outside a trial.
        of_events: Cache of values computed from the events, shared by all subsets of the rows.
    """

    events: pd.DataFrame
    rows: pd.DataFrame
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    code_table: pd.DataFrame | None = None
    positions: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp), repr=False)
    shared: BlockSource | None = field(default=None, repr=False)
    of_events: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def build(
        cls,
        events: pd.DataFrame,
        rows: pd.DataFrame,
        code_table: pd.DataFrame | None = None,
    ) -> Self:
        """Sort events by patient and time, and find the events of each row.

        If a row's patient has only a birth and static events up to the prediction time, the row
        gets no events at all.

        Args:
            events: Columns subject_id, time, code and value.
            rows: Columns subject_id and prediction_time.
            code_table: Descriptions and ancestors of the codes.
        """
        order = event_order(events["subject_id"], events["time"].to_numpy())
        events = events if order is None else events.iloc[order]
        rows = rows.assign(subject_id=like_ids(rows["subject_id"], events["subject_id"]))
        start, stop = _bounds(events, rows)
        made = cls(canonical(events), canonical(rows), start, stop, code_table=code_table)
        timed = made._timed()
        is_empty = np.searchsorted(timed, start) == np.searchsorted(timed, stop)
        return replace(made, stop=np.where(is_empty, start, stop))

    def _timed(self) -> NDArray[np.intp]:
        """Return the positions of events with a time, except births."""
        codes = self.events["code"].cat.codes.to_numpy()
        has_time = ~np.isnat(self.events["time"].to_numpy())
        return np.flatnonzero(has_time & ~np.isin(codes, self.births))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and number of distinct codes."""
        return len(self.start), len(self.events["code"].cat.categories)

    def __len__(self) -> int:
        return len(self.start)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "shared": None, "of_events": {}}

    @property
    def codes(self) -> list[str]:
        """The vocabulary, sorted."""
        return self.once("codes", lambda: list(self.events["code"].cat.categories))

    @property
    def births(self) -> NDArray[np.intp]:
        """Positions of the birth codes in the vocabulary."""
        return self.once("births", lambda: np.flatnonzero([*map(is_birth_code, self.codes)]))

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """Compute a value from events and codes once, shared by all subsets of the rows."""
        known = self.of_events.get(name)
        if known is None or known[0] is not self.events or known[1] is not self.code_table:
            known = self.of_events[name] = self.events, self.code_table, make()
        made: Made = known[2]
        return made

    def parents(self) -> Mapping[str, tuple[str, ...]]:
        """Return the sorted ancestors of each code and ancestor; empty without a code table."""
        table = self.code_table
        if table is None:
            return {}
        return dict(zip(table["code"], map(tuple, table["parents"]), strict=True))

    def descriptions(self) -> Mapping[str, str]:
        """Return the known descriptions, by code or ancestor."""
        if self.code_table is None:
            return {}
        described = zip(self.code_table["code"], self.code_table["description"], strict=True)
        return {code: text for code, text in described if text}

    def codes_of_events(self) -> tuple[NDArray[np.integer[Any]], NDArray[np.int64]]:
        """Return the codes of all rows' events, the starts of rows, and the end of the last row."""
        codes = self.events["code"].cat.codes.to_numpy()[positions(self.start, self.stop)]
        return codes, np.append(0, np.cumsum(self.stop - self.start))

    def take(self, rows: NDArray[np.intp]) -> Self:
        """Return the given rows, in the given order, without copying events."""
        taken = self.rows.iloc[rows].reset_index(drop=True)
        positions = self.positions[rows] if self.shared is not None else self.positions
        return replace(
            self, rows=taken, start=self.start[rows], stop=self.stop[rows], positions=positions
        )

    def pieces(self, n_events: int) -> Iterator[Self]:
        """Yield pieces of consecutive rows with about `n_events` events, and at least one row."""
        piece = np.cumsum(self.stop - self.start) // n_events
        for rows in np.split(np.arange(len(self)), np.flatnonzero(np.diff(piece)) + 1):
            yield self.take(rows)

    def longest_rows(self, rows: NDArray[np.intp] | slice = slice(None)) -> NDArray[np.intp]:
        """Return each patient's row with the most events among the given rows.

        All rows of a patient begin at the same event, so the longest row contains the events of all
        rows.
        """
        numbers = np.arange(len(self))[rows]
        by_length = numbers[np.lexsort((self.stop[rows], self.start[rows]))]
        return by_length[np.diff(self.start[by_length], append=-1) != 0]

    def frames(self) -> dict[str, pd.DataFrame]:
        """Return all content that can affect results, as frames by name; omits descriptions."""
        pairs = {
            name: canonical(frame)
            for name, frame in as_frames(self.code_table).items()
            if name == PARENTS and len(frame)
        }
        return {"events": self.events, "rows": self.rows, **pairs}

    def parts(self) -> dict[str, Any]:
        """Return all parts to store by name: frames, bounds of the rows, and the code table."""
        tables = {"events": self.events, "rows": self.rows, **as_frames(self.code_table)}
        return {**tables, "start": self.start, "stop": self.stop}

    @classmethod
    def from_parts(cls, parts: Mapping[str, Any]) -> Self:
        """Return the rows whose `parts` were stored."""
        events, rows, table = parts["events"], parts["rows"], from_frames(parts)
        return cls(events, rows, parts["start"], parts["stop"], code_table=table)


def is_birth_code(code: str) -> bool:
    """Return whether a code denotes the birth of a patient."""
    return code == _BIRTH or code.startswith(f"{_BIRTH}//")


def positions(
    start: NDArray[np.int64], stop: NDArray[np.int64], dtype: Any = np.int64
) -> NDArray[Any]:
    """Return the concatenated ranges of positions from each start up to (excluding) each stop."""
    lengths = stop - start
    made = np.repeat((start - (np.cumsum(lengths) - lengths)).astype(dtype), lengths)
    made += np.arange(len(made), dtype=dtype)
    return made


def _bounds(
    events: pd.DataFrame, rows: pd.DataFrame
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of each row's first event and after its last event, shape (n,) each."""
    ids = events["subject_id"]
    coded = ids.cat.codes if isinstance(ids.dtype, pd.CategoricalDtype) else ids
    is_first = np.ones(len(ids), dtype=bool)
    np.not_equal(coded.to_numpy()[1:], coded.to_numpy()[:-1], out=is_first[1:])
    boundaries = np.flatnonzero(is_first)
    ends = np.append(boundaries[1:], len(events))
    patient = pd.Index(ids.iloc[boundaries]).get_indexer(rows["subject_id"])
    times = events["time"].to_numpy().view(np.int64)  # a missing time becomes the smallest number
    until = rows["prediction_time"].to_numpy().astype(np.int64)
    start, end = boundaries[patient], np.where(patient < 0, boundaries[patient], ends[patient])
    seen = [
        times[first:last].searchsorted(time, side="right")
        for first, last, time in zip(start, end, until, strict=True)
    ]
    return start.astype(np.int64), start + np.array(seen, dtype=np.int64)


def event_order(ids: pd.Series, time: NDArray[np.datetime64]) -> NDArray[np.intp] | None:
    """Return the stable order by patient and time; None if events are already sorted."""
    is_number = isinstance(ids.dtype, np.dtype) and ids.dtype.kind in "iu"
    patient = ids.to_numpy() if is_number else pd.factorize(ids, sort=True)[0]
    micros = time.astype("datetime64[us]", copy=False).view(np.int64)  # missing times are smallest
    is_new = patient[1:] > patient[:-1]
    is_sorted = is_new | ((patient[1:] == patient[:-1]) & (micros[1:] >= micros[:-1]))
    return None if is_sorted.all() else np.lexsort((micros, patient))


_WHOLE_ID = r"0|-?[1-9]\d{0,19}"
"""Pattern of strings that become whole numbers, such as `7`; `007` and `+7` stay strings."""
_LARGEST_ID = np.iinfo(np.int64).max


def as_ids(column: pd.Series, where: str) -> pd.Series:
    """Return ids as int64 if all are integers or strings of integers; otherwise as strings.

    Thus an id in an untyped CSV file equals the same id in a Parquet file. No id may be missing.

    Raises:
        BadInput: If ids are floats that are fractional or too large to be exact.
    """
    if pd.api.types.is_float_dtype(column):
        bad = column[(column % 1 != 0) | (column.abs() > EXACT)]
        if len(bad):
            raise BadInput(
                f"{where} has patient ids as floats, which lose digits, such as {bad.iloc[0]!r}; "
                "write whole numbers or strings"
            )
        return column.astype(np.int64)
    if pd.api.types.is_integer_dtype(column) and not (column > _LARGEST_ID).any():
        return column.astype(np.int64)
    number, uniques = pd.factorize(column.astype(object).map(str))
    texts = without_point_zero(pd.Series(uniques, dtype=object))
    values: NDArray[Any] = texts.to_numpy()
    if len(texts) and texts.astype("string").str.fullmatch(_WHOLE_ID).all():
        with suppress(OverflowError):
            values = np.array([*map(int, texts)], dtype=np.int64)
    return pd.Series(values[number], index=column.index)


def joined_ids(columns: Sequence[pd.Series]) -> pd.Series:
    """Join the ids of several tables; convert to strings if the types differ."""
    if len({column.dtype for column in columns}) > 1:
        columns = [column.map(str) for column in columns]
        return as_ids(pd.concat(columns, ignore_index=True), "")
    return pd.concat(columns, ignore_index=True)


def like_ids(ids: pd.Series, known: pd.Series) -> pd.Series:
    """Return ids in the type of known ids (17 and "17" are the same patient); keep new ids."""
    if ids.dtype == known.dtype:
        return ids
    by_text: dict[str, Any] = {str(one): one for one in known.unique()}
    texts = ids.map(str)
    made = pd.Series([by_text.get(text, text) for text in texts], index=ids.index, dtype=object)
    return made.astype(known.dtype) if texts.isin(list(by_text)).all() else made
