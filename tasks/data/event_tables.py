"""Tables of events and labels, accepting the column names of MEDS and event logs."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import nan
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from prefect_tune.optimizers.method import counted
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.events import as_ids, event_order, joined_ids
from prefect_tune.tasks.data.files import (
    NOTES,
    columns_called,
    is_text,
    joined,
    need_scalars,
    parquet_schema,
    read_pieces,
    read_table,
)
from prefect_tune.tasks.data.location import Location, shards
from prefect_tune.tasks.data.notation import Notation
from prefect_tune.tasks.data.schema import Times, utc_times
from prefect_tune.tasks.data.source import GAPS

_TIMES = ("time", "timestamp", "datetime", "date")
SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "subject_id": ("subject_id", "patient_id", "person_id", "patient"),
    "code": ("code", "event_id", "event", "event_code", "concept"),
    "time": (*_TIMES, "event_time", "event_date"),
    "value": ("numeric_value", "value", "valuequantity", "value_quantity"),
    "text": ("text_value", "value_text", "valuestring", "value_string", "value_as_string"),
    "answer": ("answer", "value_code", "valuecodeableconcept", "value_codeable_concept"),
    "unit": ("unit", "units", "value_unit", "valueuom"),
    "prediction_time": ("prediction_time", "index_time", "index_date", *_TIMES),
}
"""Accepted names for each column of events or labels; the first name found is used."""

LABEL_COLUMNS = ("boolean_value", "integer_value", "categorical_value", "label", "target", "class")
"""Columns that may contain the class, in any case; the first non-empty column is used."""
EVENT_TEXTS = frozenset(s for n in ("subject_id", "code", "time", "answer") for s in SYNONYMS[n])
LABEL_TEXTS = frozenset(s for n in ("subject_id", "prediction_time") for s in SYNONYMS[n])
"""Columns of CSV files to read as strings, because `042` is not 42."""


_TEXTS = ("text", "answer", "unit")
_NEEDED, _OPTIONAL = ("subject_id", "code", "time"), ("value", *_TEXTS)
_HAS_COMMA = re.compile(r"(?![-+]?[1-9]\d{0,2},\d{3}$)[-+]?[\d.]*,\d+")
"""Pattern of numbers in which the comma cannot separate thousands."""
_LONGEST_TEXT, _UNUSED = 64, "\0"
"""Maximum length of a string that may become part of a code, and the marker of unused strings."""
_MOST_TEXTS, _MOST_OF_CODE = 20_000, 100
"""Maximum number of strings that become parts of codes, in total and per code; the most frequent
are used."""
_MOST_SEEN = 1_000_000
"""Maximum number of distinct strings counted, to bound memory; strings seen later count as rare."""
_TO_END_OF_DAY = np.timedelta64(86_400_000_000 - 1, "us")


def read_event_tables(location: Location, texts: Collection[str]) -> Iterator[pd.DataFrame]:
    """Yield tables of events or labels; columns named in `texts` are read as strings."""
    for shard in shards(location):
        yield read_table(shard, columns_called(shard, texts))


def read_events(location: Location) -> Iterator[pd.DataFrame]:
    """Yield tables of events; Parquet files are read in pieces."""
    for shard in shards(location):
        if not shard.is_parquet():
            yield read_table(shard, columns_called(shard, EVENT_TEXTS))
            continue
        schema = parquet_schema(shard)
        found = [_named_so(schema.names, SYNONYMS[name]) for name in (*_NEEDED, *_OPTIONAL)]
        columns = [first for first in (next(names, None) for names in found) if first is not None]
        if doubled := [name for name in columns if schema.names.count(name) > 1]:
            raise BadInput(f"{shard.url} has two columns called {doubled[0]!r}; rename one")
        kinds = {column: schema.field(column).type for column in columns}
        texts = [c for c, kind in kinds.items() if is_text(kind) or pa.types.is_dictionary(kind)]
        yield from read_pieces(shard, columns, texts)


def event_frame(
    subject_id: pd.Series,
    time: pd.Series | None,
    code: pd.Series | str,
    value: pd.Series | float = np.nan,
    **more: pd.Series,
) -> pd.DataFrame:
    """Build events for `events_table`; events without a time are static.

    `more` contains columns such as `unit`, or `answer` for strings that are never numbers.
    """
    columns = {"subject_id": subject_id, "code": code, "numeric_value": value, **more}
    frame = pd.DataFrame(columns, index=subject_id.index)
    frame.attrs = dict(subject_id.attrs)
    return frame.assign(time=pd.Series(time, index=frame.index, dtype="datetime64[us]"))


def events_table(
    tables: Iterable[pd.DataFrame],
    where: str,
    gaps: Collection[str] = GAPS,
    *,
    are_midnights_dates: bool | None = None,
    trained: Collection[str] | None = None,
) -> tuple[pd.DataFrame, list[str]]:
    """Join tables with known column names into columns subject_id, time, code, value.

    Times without a zone are UTC; a date without a time of day means the end of the day. If an event
    has a string instead of a number, the string becomes part of the code, as in `LAB//X//POSITIVE`.
    If a code has several units, the unit of a number becomes part of the code.

    Args:
        tables: Tables to join.
        where: Name of the tables in messages.
        gaps: Strings that count as missing, for messages.
        are_midnights_dates: Whether times at midnight are dates. If None, midnights are dates if
            all times in all tables are at midnight.
        trained: Codes of the training data; a string or unit becomes part of a code only if the
            result is in `trained`. If `trained` is None, codes are chosen from scratch.

    Returns:
        The events, and notes for the user.

    Raises:
        BadInput: If a column is missing, a time does not parse, a patient or code is empty, or
            there are no events.
    """
    gathered, notes = _Gathered(are_midnights_dates), dict[str, None]()
    n_missing = pd.Series(0, index=["subject_id", "code"])
    for table in tables:
        notes.update(dict.fromkeys(table.attrs.get(NOTES, ())))
        named = name_columns(table, _NEEDED, where, _OPTIONAL)
        n_missing += named[n_missing.index].isna().sum()
        if len(named) and not n_missing.any():
            gathered.add(named, where)
    for needed, n in n_missing[n_missing > 0].items():
        missing = ", ".join(["empty cells", *filter(None, gaps)])
        raise BadInput(
            f"{where} has {n} events without {needed} ({missing} count as missing; --na-values "
            "names other strings)"
        )
    if not gathered.n:
        raise BadInput(f"{where} has no events")
    if are_midnights_dates is None and gathered.are_midnights and not gathered.are_dates:
        note = f"all times of {where} are at midnight, so each event counts at the end of its day"
        notes[f"{note}, too late for a prediction on the same day"] = None
    events, more_notes = gathered.events(where, trained)
    return events, [*notes, *more_notes]


class _Gathered:
    """Collector of events from several tables in a compact form."""

    def __init__(self, are_midnights_dates: bool | None) -> None:
        self._are_midnights_dates = are_midnights_dates
        self.are_midnights = self.are_dates = True
        self.n = 0
        self._ids, self._times = list[pd.Series](), list[NDArray[np.datetime64]]()
        self._values, self._codes = list[NDArray[np.float64]](), list[NDArray[np.int32]]()
        self._vocabulary = dict[tuple[str, str, str], int]()
        self._n_beside, self._comma = 0, ""
        self._dates: list[NDArray[np.int64]] = []

    def add(self, named: pd.DataFrame, where: str) -> None:
        times = Times.of(named["time"], where)
        has_time = times.utc.notna()
        self.are_midnights &= bool((times.is_midnight | ~has_time).all())
        self.are_dates &= bool((times.is_date | ~has_time).all())
        is_date = times.is_midnight if self._are_midnights_dates else times.is_date
        self._dates.append(self.n + np.flatnonzero(is_date & has_time))
        self._times.append(times.utc.to_numpy())
        self._ids.append(as_ids(named["subject_id"], where))
        number, names = _factorized(named["code"])
        known = self._vocabulary
        position = [known.setdefault((name, "", ""), len(known)) for name in names]
        code = np.array(position, dtype=np.int32)[number]
        self._values.append(self._refined(named, code))
        self._codes.append(code)
        self.n += len(named)

    def _refined(self, named: pd.DataFrame, code: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return each event's number, adding strings and units to the codes in place."""
        value, part = np.full(len(named), nan), np.full(len(named), -1)
        parts: list[tuple[str, str]] = []
        for name in [name for name in _OPTIONAL if name in named]:
            may_be_number, kind = name in {"value", "text"}, "unit" if name == "unit" else "text"
            if may_be_number and pd.api.types.is_numeric_dtype(named[name]):
                numbers = named[name].to_numpy(dtype=np.float64, na_value=nan)
                value = np.where(np.isnan(value) & np.isfinite(numbers), numbers, value)
                continue
            number, texts = _factorized(named[name])
            is_given = number >= 0
            if may_be_number:
                read, comma = _read_numbers(texts)
                self._comma = self._comma or comma
                value = np.where(np.isnan(value), np.append(read, nan)[number], value)
                is_given &= np.isnan(np.append(read, 0.0))[number]
            is_used = is_given & (part < 0) & (np.isnan(value) == (kind == "text"))
            self._n_beside += int((is_given & ~np.isnan(value)).sum()) if kind == "text" else 0
            part[is_used] = len(parts) + number[is_used]
            parts += [(kind, text.lower() if kind == "unit" else text) for text in texts]
        if (is_used := part >= 0).any():
            known, codes = self._vocabulary, [key[0] for key in self._vocabulary]
            pair, found = pd.factorize(code[is_used].astype(np.int64) * len(parts) + part[is_used])
            keys = [(codes[one // len(parts)], *parts[one % len(parts)]) for one in found.tolist()]
            for i, (plain, kind, text) in enumerate(keys):
                key = (plain, kind, text.strip())
                if len(text) > _LONGEST_TEXT or (key not in known and len(known) >= _MOST_SEEN):
                    key = (plain, kind, _UNUSED)
                found[i] = known.setdefault(key, len(known))
            code[is_used] = found[pair]
        return np.where(np.isfinite(value), value, nan)

    def _names(
        self, count: NDArray[np.int64], where: str, trained: Collection[str] | None
    ) -> tuple[list[str], list[str]]:
        """Return the code of each entry of the vocabulary, and notes on strings and units.

        `count` contains the number of events of each entry.
        """
        entries = pd.DataFrame([*self._vocabulary], columns=["code", "kind", "text"])
        is_text, is_unit = entries["kind"] == "text", entries["kind"] == "unit"
        entries["whole"], entries["count"] = entries["code"] + "//" + entries["text"], count
        is_short = ~entries["text"].isin(["", _UNUSED])
        if trained is None:
            texts = entries[is_text & is_short].sort_values(
                ["count", "whole"], ascending=[False, True]
            )
            texts = texts[texts.groupby("code").cumcount() < _MOST_OF_CODE][:_MOST_TEXTS]
            of_code = entries["text"].where(is_short).groupby([entries["code"], entries["kind"]])
            is_split = is_unit & is_short & (of_code.transform("count") > 1)
            is_kept = entries.index.isin(texts.index) | is_split.to_numpy()
            why = f"is longer than {_LONGEST_TEXT} characters or rare"
        else:
            is_kept = (is_short & entries["whole"].isin(set(trained))).to_numpy()
            why = "is not in the training data"
        n_left = entries["count"][is_text & ~is_kept].sum()
        notes = {
            f"{n_left} events of {where} keep only their code, because their string {why}": n_left,
            f"{self._n_beside} strings of {where} next to a number are not used": self._n_beside,
            f"values of {where} such as {self._comma} have a decimal comma": self._comma,
        }
        for what, is_what in (("string values", is_text), ("several units", is_unit)):
            if (is_kept & is_what).any() and trained is None:
                split = entries[is_kept & is_what]
                text = f"{what} of {counted(split['code'].nunique(), 'code')} of {where} became"
                notes[f"{text} part of the code, such as {split['whole'].iloc[0]}"] = True
        names = entries["whole"].where(is_kept, entries["code"]).tolist()
        return names, [note for note, applies in notes.items() if applies]

    def events(self, where: str, trained: Collection[str] | None) -> tuple[pd.DataFrame, list[str]]:
        """Return all events in order, and notes; release the memory of the parts."""
        ids, time = joined_ids(self._ids), _released(self._times)
        self._ids.clear()
        if self._are_midnights_dates is None and self.are_midnights:
            time += _TO_END_OF_DAY
        else:
            time[np.concatenate(self._dates)] += _TO_END_OF_DAY
        order: Any = event_order(ids, time)
        order = slice(None) if order is None else order
        count = sum(np.bincount(part, minlength=len(self._vocabulary)) for part in self._codes)
        names, notes = self._names(np.asarray(count), where, trained)
        used = sorted({names[position] for position in np.flatnonzero(count).tolist()})
        categories = pd.Index(used, dtype=object)
        rank = categories.get_indexer(pd.Index(names, dtype=object)).astype(np.int32)
        code = pd.Categorical.from_codes(rank[_released(self._codes)[order]], categories=categories)
        columns = {
            "subject_id": ids.iloc[order].reset_index(drop=True),
            "time": time[order],
            "code": code,
            "value": _released(self._values)[order],
        }
        return pd.DataFrame(columns, copy=False), notes


def _released(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    """Join arrays, and release the memory of the parts."""
    made = np.concatenate(arrays)
    arrays.clear()
    return made


def labels_table(
    tables: Iterable[pd.DataFrame], where: str, target: str | None, time: str | None = None
) -> tuple[pd.DataFrame, pd.Series]:
    """Join tables of labels into rows (subject_id, prediction_time) and their targets.

    Args:
        tables: Label tables; empty tables are skipped.
        where: Name of the tables in messages.
        target: Column to predict; None for the first non-empty column among `LABEL_COLUMNS`.
        time: Name given by the user for the column of prediction times, used only for a check.

    Raises:
        BadInput: If a column is missing, a time does not parse, or there are no labels.
    """
    filled = [table for table in tables if len(table)]
    if not filled:
        raise BadInput(f"{where} has no labels")
    table = joined(filled)
    named = name_columns(table, ("subject_id", "prediction_time"), where)
    known = next(_named_so(table.columns, SYNONYMS["prediction_time"]))
    if time not in {None, "prediction_time", known}:
        raise BadInput(
            f"rows of events are ordered by prediction time, column {known!r} of {where}",
            option="time",
            value=time,
            remedy="use --time prediction_time",
        )
    if target is None:
        named_so = _named_so(table.columns, LABEL_COLUMNS)
        candidates = [column for column in named_so if table[column].notna().any()]
        if not candidates:
            raise BadInput(
                f"{where} has no class column with a known name; choose one with --target, or "
                f"rename it to one of {', '.join(LABEL_COLUMNS)}"
            )
        target = candidates[0]
    elif target not in table:
        raise BadInput(
            f"{where} has no column {target!r}; its columns: {', '.join(map(str, table.columns))}"
        )
    need_scalars(table[target], where)
    times = utc_times(named["prediction_time"], where, at_end_of_day=False)
    for what, column in (("time", times), ("patient", named["subject_id"])):
        if column.isna().any():
            raise BadInput(f"{where} has {column.isna().sum()} labels without a {what}")
    subject_id = as_ids(named["subject_id"], where)
    rows = pd.DataFrame({"subject_id": subject_id, "prediction_time": times})
    return rows, table[target]


def has_dates_alone(times: pd.Series) -> bool:
    """Return whether all times, like dates, are the last microsecond of a day in some time zone.

    If true, later events at midnight are also dates.
    """
    micros = times.dropna().to_numpy(dtype="datetime64[us]").view(np.int64)
    return bool(len(micros) and (micros % 1_000_000 == 999_999).all())


def has_event_columns(columns: Iterable[str]) -> bool:
    """Return whether a table with the given columns can be a table of events."""
    known = {column.lower() for column in columns}
    return all(known & set(SYNONYMS[name]) for name in _NEEDED)


def name_columns(
    table: pd.DataFrame, needed: tuple[str, ...], where: str, optional: tuple[str, ...] = ()
) -> pd.DataFrame:
    """Return the needed and optional columns of a table, renamed to the keys of `SYNONYMS`.

    Raises:
        BadInput: If a needed column is not found under any known name.
    """
    found = {}
    for name in (*needed, *optional):
        column = next(_named_so(table.columns, SYNONYMS[name]), None)
        if column is not None:
            found[name] = table[column]
        elif name in needed:
            raise BadInput(
                f"{where} has no column for {name}; expected one of "
                f"{', '.join(SYNONYMS[name])}. Its columns: {', '.join(map(str, table.columns))}"
            )
    return pd.DataFrame(found)


def _named_so(columns: Iterable[Any], names: Iterable[str]) -> Iterator[Any]:
    """Yield the columns whose lowercased names are in `names`, in the order of `names`."""
    lowered = {str(column).lower(): column for column in reversed([*columns])}
    return (lowered[name] for name in names if name in lowered)


def _factorized(column: pd.Series) -> tuple[NDArray[np.integer[Any]], list[str]]:
    """Return the index of each event's string (-1 if missing), and the distinct strings."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        names = column.cat.categories.tolist()
        if names and all(isinstance(name, str) for name in names):
            return column.cat.codes.to_numpy(), names
    number, texts = pd.factorize(column.astype("string"))
    return number, texts.tolist()


def _read_numbers(texts: Sequence[str]) -> tuple[NDArray[np.float64], str]:
    """Return each string as a number (NaN if not a number), and an example of a decimal comma."""
    read = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce")
    numbers, example = np.array(read, dtype=np.float64), ""
    for position in np.flatnonzero(np.isnan(numbers)).tolist():
        text = texts[position].strip()
        number = Notation(",").number(text) if _HAS_COMMA.fullmatch(text) else np.inf
        if np.isfinite(number):
            numbers[position], example = number, text
    return numbers, example
