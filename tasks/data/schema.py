"""Inference of each column's kind: number, category, date, duration or free text.

`RowReader` uses the inferred kinds to read the rows of the table and all later rows.

Folds that look forward in time need the time of each row (`row_times`): a date, a year, seconds
since 1970, or a number that defines an order. The time column is not a feature. `Times` represents
the times of events and labels.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.bad_input import BadInput, need_column, shown_columns
from prefect_tune.tasks.data.notation import (
    LEAST_SHARE,
    NoNumbers,
    Notation,
    WrittenNumbers,
    decimal_mark,
    is_texts,
    numbers_in,
)
from prefect_tune.tasks.data.row_reader import (
    EXACT,
    MOST,
    LearnedColumn,
    RowReader,
    UnreadableCell,
    category_texts,
    is_gap,
    naive_utc,
    seconds_of,
    unreadable_text,
    utc_of,
)
from prefect_tune.tasks.data.source import GAPS

_LOGGER = logging.getLogger(__name__)
TEXT_VALUES = 100
"""Number of distinct values above which a string column with mostly distinct values is not
categorical."""
TEXT_SHARE = 0.5
_IDENTIFIER_SHARE = 0.95
"""Fraction of distinct values above which a column of single words only identifies rows."""
_FEW_ROWS = 20
"""Number of rows above which a column of distinct integers may only identify rows."""
_MOST_HASHED, _ALL_HASHED, _LEAST_HASHED = 128, 256, 16
"""Numbers of columns of hashed words: maximum for one text column, maximum for all together, and
minimum for one of many."""
_HASHED_CELLS = 50_000_000
"""Maximum number of cells of hashed words in a table (400 MB), unless earlier studies of a series
used more."""
_TEXT_WORDS = 2
"""Minimum average number of words per value in a free-text column."""
_PROBED = 1_000
"""Number of values inspected to distinguish free text from names, and lists from single values."""
_DATE_LIKE = re.compile(r"\d{1,4}[-./ ](?:\d{1,2}|[A-Za-z]{3})[-./ ]\d{1,4}(?:[T ].*)?")
_LONG_YEARS = ("%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y")
_OTHER_DAYS = ("%d.%m.%y", "%m/%d/%y", "%d/%m/%y", "%d-%b-%Y", "%d %b %Y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
DATE_FORMATS = tuple(day + clock for day in (*_LONG_YEARS, *_OTHER_DAYS) for clock in _CLOCKS)
"""Formats of dates written as strings, other than ISO 8601."""


def features_of(  # noqa: PLR0917 - options for columns
    frame: pd.DataFrame,
    drop: Sequence[str],
    categorical: Sequence[str],
    where: str,
    missing: Sequence[str] = GAPS,
    whole: Sequence[str] = (),
    texts: Sequence[tuple[str, int]] = (),
) -> tuple[pd.DataFrame, RowReader, list[str]]:
    """Infer the kinds of a table's columns, and read the rows.

    Args:
        frame: Table without the target.
        drop: Columns to skip.
        categorical: Columns to treat as categories, regardless of their values.
        where: Name of the table in messages.
        missing: Strings that count as missing.
        whole: Columns that must each become a single feature, because they define groups of a
            constraint.
        texts: String columns from earlier studies of a series, which keep their kind: names mapped
            to numbers of hashed words (0 for categories).

    Returns:
        The features in canonical form, the reader of the rows, and notes for the user.

    Raises:
        BadInput: If a named column is missing, if no column is left, or if features of two columns
            would share a name.
    """
    for named in (*drop, *categorical):
        need_column(named, frame.columns, where)
    frame = frame.drop(columns=list(drop))
    frame.columns = frame.columns.astype(str)
    columns, earlier, decimal = list[LearnedColumn](), dict(texts), decimal_mark(frame)
    left_out, notes = dict[str, list[str]](), list[str]()
    for name in frame.columns:
        column = frame[name][~is_gap(frame[name], missing)]
        is_category = name in categorical or (name in whole and not _holds_numbers(column))
        learned: LearnedColumn | str
        if is_category and len(column):
            learned = _category(column)
        elif name in earlier and pd.api.types.infer_dtype(column, skipna=True) == "string":
            learned = LearnedColumn(name, "text") if earlier[name] else _category(column)
        else:
            learned, more_notes = _learned(column, decimal)
            notes += more_notes
        if isinstance(learned, str):
            left_out.setdefault(learned, []).append(name)
            continue
        columns.append(learned)
        if learned.kind == "category" and column.dtype == np.dtype(object):
            types = sorted({type(value).__name__ for value in column})
            if len(types) > 1:
                held = " and ".join(types)
                notes.append(f"column {name} holds values of types {held}, and is read as strings")
    if not columns:
        why = "".join(f"; {', '.join(names)}: {reason}" for reason, names in left_out.items())
        raise BadInput(f"{where} has no column left to learn from{why}")
    free_texts = [column.name for column in columns if column.kind == "text"]
    n_words = {name: earlier[name] for name in free_texts if earlier.get(name)}
    if new := [name for name in free_texts if name not in n_words]:
        left = min(_ALL_HASHED, _HASHED_CELLS // max(len(frame), 1)) - sum(n_words.values())
        n_words |= dict.fromkeys(new, max(_LEAST_HASHED, min(_MOST_HASHED, left // len(new))))
    columns = [replace(column, n_words=n_words.get(column.name, 0)) for column in columns]
    reader = RowReader(tuple(columns), tuple(missing))
    features = pd.Index(reader.get_feature_names_out())
    if features.has_duplicates:
        doubled = features[features.duplicated()][0]
        raise BadInput(
            f"{where} has a column {doubled!r}, and another column of dates or free text needs "
            f"this name for one of its features; rename the column {doubled!r}"
        )
    X, _ = reader.read(frame)
    notes += [f"left out: {shown_columns(names)} ({why})" for why, names in left_out.items()]
    notes += [*_notes(frame, X, reader), *_huge_notes(frame, X, reader)]
    return canonical(X), reader, notes


def _notes(frame: pd.DataFrame, X: pd.DataFrame, reader: RowReader) -> Iterator[str]:
    """Yield notes on columns that the user may want to treat differently."""
    alike: dict[str | Notation, list[str]] = {}
    for column in reader.columns:
        name = column.name
        if column.kind in _BECAME:
            alike.setdefault(_BECAME[column.kind], []).append(name)
        if column.kind != "number":
            continue
        if is_texts(frame[name]):
            alike.setdefault((*column.notations, Notation())[0], []).append(name)
        if pd.api.types.is_integer_dtype(frame[name].dtype) and (frame[name].abs() > EXACT).any():
            yield (
                f"column {name} holds whole numbers above {EXACT:g}, which lose their last digits "
                f"in models; if the numbers are codes, use --categorical {quote(name)}"
            )
        numbers = X[name].to_numpy()
        if (
            len(numbers) > _FEW_ROWS
            and all(  # a look at the first numbers quickly rules out most columns
                (part % 1 == 0).all() and len(np.unique(part)) == len(part)
                for part in (numbers[:_PROBED], numbers)
            )
        ):
            yield (
                f"column {name} holds a different whole number in each row; if it only identifies "
                f"the row, drop it with --drop {quote(name)}"
            )
    for how, names in alike.items():
        if text := how.of(frame[names[0]]) if isinstance(how, Notation) else how:
            yield f"{shown_columns(names)}: {text}"


_BECAME = {
    "date": "read as UTC dates, with days since 1970 and calendar parts as features",
    "duration": "read as durations, in seconds",
    "text": "read as free text, with the number of words and hashed words as features",
}


def _huge_notes(
    frame: pd.DataFrame, X: pd.DataFrame, reader: RowReader, cells: Sequence[UnreadableCell] = ()
) -> Iterator[str]:
    """Yield a note on each column with numbers that are too large for models."""
    for column in reader.columns:
        name = column.name
        if column.kind == "number" and name in frame and X[name].hasnans:
            n_lost = (X[name].isna().to_numpy() & ~is_gap(frame[name], reader.missing)).sum()
            if n_huge := n_lost - sum(cell.column == name for cell in cells):
                yield (
                    f"column {name}: infinite numbers and numbers beyond {MOST:g} count as missing "
                    f"({n_huge} of {len(frame)})"
                )


def _learned(column: pd.Series, decimal: str) -> tuple[LearnedColumn | str, list[str]]:
    """Return the kind of a column without missing values, or the reason to skip it, and notes.

    `decimal` is the decimal mark of numbers in the table's strings; empty if unknown.
    """
    name, kind = str(column.name), column.dtype
    if not len(column) or pd.api.types.is_complex_dtype(kind):
        return "complex numbers" if len(column) else "no values", []
    if _holds_numbers(column):
        may_have_commas = decimal == "," and pd.api.types.is_integer_dtype(kind)
        return LearnedColumn(name, "number", notations=(Notation(","),) * may_have_commas), []
    nested = next((v for v in column.iloc[:_PROBED] if isinstance(v, _NESTED)), None)
    if nested is not None:
        return f"values of type {type(nested).__name__}", []
    found, values = pd.api.types.infer_dtype(column, skipna=True), column.drop_duplicates()
    if found in {"date", "datetime", "datetime64", "period"}:
        return _date(column, ""), []
    is_duration = found != "categorical" and np.isfinite(seconds_of(values.iloc[0]))
    if found == "timedelta64" or (is_duration and np.isfinite([*map(seconds_of, values)]).all()):
        return LearnedColumn(name, "duration"), []
    are_dates = _are_dates(values) if found == "string" else {}
    formats = [written for written, is_date in are_dates.items() if is_date.all()]
    if len(formats) == 1:
        return _date(column, formats[0]), []
    numbers = numbers_in(column, decimal)
    if isinstance(numbers, WrittenNumbers) and not numbers.strays:
        notations = () if numbers.is_plain else (numbers.notation,)
        if notations or found != "categorical":
            return LearnedColumn(name, "number", notations=notations), []
    share, strays = len(values) / len(column), getattr(numbers, "strays", ())
    learned: LearnedColumn | str = ""
    if found == "string" and len(values) > TEXT_VALUES and share > TEXT_SHARE:
        _refuse_strays(values, strays)
        if np.mean([len(text.split()) for text in values.iloc[:_PROBED]]) >= _TEXT_WORDS:
            learned = LearnedColumn(name, "text")
        elif share > _IDENTIFIER_SHARE and isinstance(numbers, NoNumbers):
            return f"{numbers.within(column)}; --categorical keeps them as strings", []
        elif share > _IDENTIFIER_SHARE:
            learned = "a different string in almost every row; --categorical keeps it"
    learned, notes = learned or _category(column), list[str]()
    if isinstance(numbers, NoNumbers):
        notes = [f"column {name} holds {numbers.within(column)}, so it is not read as numbers"]
    if isinstance(learned, str) or learned.kind == "category":
        notes += _date_notes(values, are_dates, formats)
    if isinstance(learned, LearnedColumn) and learned.kind == "category":
        if numbers is None and len(values) > TEXT_VALUES:
            numeric = map(Notation().number, learned.known)
            others = [t for t, n in zip(learned.known, numeric, strict=True) if not np.isfinite(n)]
            strays = others if len(others) < len(learned.known) / 2 else ()
        if strays:
            notes.append(
                f"column {name} holds numbers and other values, such as {strays[0]!r}, so it is "
                f"read as strings; if this string means missing, add --na-values {quote(strays[0])}"
            )
    return learned, notes


def _are_dates(texts: pd.Series) -> dict[str, NDArray[np.bool_]]:
    """Return a mask of the strings that are dates, by format; the empty format is ISO 8601."""
    if not _DATE_LIKE.fullmatch(str(texts.iloc[0]).strip()):
        return {}
    found = {"": ~utc_of(texts.reset_index(drop=True), "", ())[1]}
    if found[""].all():
        return found
    stripped = texts.astype("string").str.strip()
    for written in DATE_FORMATS:
        found[written] = (
            pd.to_datetime(stripped, format=written, errors="coerce").notna().to_numpy()
        )
    return found


def _date_notes(
    texts: pd.Series, are_dates: Mapping[str, NDArray[np.bool_]], formats: Sequence[str]
) -> Iterator[str]:
    """Yield a note if distinct strings contain dates but the column is not read as dates."""
    how = "so it is read as strings; write dates like 2024-12-31"
    if formats:
        yield f"column {texts.name} may hold dates, but which part is the day is unclear, {how}"
    elif are_dates and np.any([*are_dates.values()], axis=0).mean() >= LEAST_SHARE:
        most = max(are_dates.values(), key=np.sum)
        other = texts[~most]
        yield (
            f"column {texts.name} holds dates in several formats, such as {texts[most].iloc[0]!r} "
            f"and {other.iloc[0]!r} in row {other.index[0] + 1}, {how}"
        )


_NESTED = (list, tuple, dict, set, frozenset, np.ndarray, bytes)


def _refuse_strays(values: pd.Series, no_numbers: Sequence[str]) -> None:
    """Reject strings if nearly all are numbers or dates and the others are probably typos."""
    is_date = ~utc_of(values.reset_index(drop=True), "", ())[1]
    no_dates = values[~is_date] if is_date.mean() >= LEAST_SHARE else values.iloc[:0]
    for what, strays in (("numbers", values[values.isin(no_numbers)]), ("dates", no_dates)):
        if len(strays):
            first = strays.iloc[0]
            raise BadInput(
                f"column {values.name!r} holds {what} and {len(strays)} other values, such as "
                f"{first!r} in row {strays.index[0] + 1}",
                remedy=f"if {first!r} means missing, add --na-values {quote(first)}; to treat the "
                f"column as categorical, add --categorical {quote(str(values.name))}",
            )


def _holds_numbers(column: pd.Series) -> bool:
    kind = column.dtype
    if pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_bool_dtype(kind):
        return True
    return kind == np.dtype(object) and pd.api.types.infer_dtype(column, skipna=True) in NUMBERS


NUMBERS = {"integer", "floating", "mixed-integer-float", "decimal", "boolean"}
"""Types that pandas infers for object columns of numbers or truth values."""


def _category(column: pd.Series) -> LearnedColumn:
    values = column if column.dtype == object else column.drop_duplicates()
    known = category_texts(values).dropna().unique().tolist()
    return LearnedColumn(str(column.name), "category", known=tuple(sorted(known)))


def _date(column: pd.Series, written: str) -> LearnedColumn:
    times, _ = utc_of(column.reset_index(drop=True), written, ())
    has_clock = bool((times.dropna() != times.dropna().dt.normalize()).any())
    return LearnedColumn(str(column.name), "date", format=written, has_clock=has_clock)


def like_training(
    frame: pd.DataFrame, reader: RowReader, where: str = "the data to predict"
) -> pd.DataFrame:
    """Return new rows, read with the column kinds inferred by the study.

    Raises:
        BadInput: If a column is missing, or if a cell does not match the column's kind; the message
            names the cell's row.
    """
    X, cells = read_rows(frame, reader, where)
    if cells:
        raise BadInput(unreadable_text(cells, where))
    return X


def read_rows(
    frame: pd.DataFrame, reader: RowReader, where: str
) -> tuple[pd.DataFrame, list[UnreadableCell]]:
    """Return new rows, read with the study's column kinds, and the unreadable cells.

    Raises:
        BadInput: If a column is missing.
    """
    known = {str(name) for name in frame.columns}
    for column in reader.columns:
        if not set(column.features) <= known:
            need_column(column.name, frame.columns, where)
    X, cells = reader.read(frame)
    for note in _huge_notes(frame, X, reader, cells):
        _LOGGER.warning(note)
    for name, values in unseen_values(X, reader).items():
        _LOGGER.warning(
            f"column {name}: {len(values)} of {X[name].notna().sum()} values did not occur in the "
            f"training data, such as {values.iloc[0]!r} in row {values.index[0] + 1}"
        )
    return canonical(X), cells


def unseen_values(X: pd.DataFrame, reader: RowReader) -> dict[str, pd.Series]:
    """Return, by column, the values in new rows that are not categories of the training rows."""
    found = {}
    for column in reader.columns:
        if column.kind == "category" and column.name in X:
            values = X[column.name].dropna().astype(object)
            if len(unseen := values[~values.isin(column.known)]):
                found[column.name] = unseen
    return found


RowTimes = NDArray[np.datetime64] | NDArray[np.float64]
"""Times of n rows, shape (n,): UTC with microsecond resolution, or numbers without a unit."""

_FORMATS = ("", "%Y-%m", *DATE_FORMATS)
"""Formats of times written as strings; the empty format is ISO 8601."""
_SHOWN = 3
"""Maximum number of bad values named in a message."""
_YEARS, _DAYS = (1000, 2999), (1000_01_01, 2999_12_31)
"""Ranges of integers that are read as years, and as dates such as 20240501."""
_SINCE_1970 = {"s": (1e8, 1e-6), "ms": (1e11, 1e-3), "us": (1e14, 1.0), "ns": (1e17, 1e3)}
"""Units of time since 1970, each with the minimum for a column's maximum, and microseconds per
unit."""


def row_times(column: pd.Series, where: str, missing: Sequence[str] = GAPS) -> tuple[RowTimes, str]:
    """Return the time of each row, and a description of how the values were read.

    Raises `BadInput` if a time is missing or does not parse. The message contains values and rows,
    counted from 1.
    """
    column = column.reset_index(drop=True)
    gap = is_gap(column, missing)
    if gap.any():
        raise BadInput(
            f"column {column.name!r} of {where} has no time in {gap.sum()} of {len(gap)} rows, "
            f"such as row {np.flatnonzero(gap)[0] + 1}",
            option="time",
            value=str(column.name),
            remedy="fill in these times, or remove the rows",
        )
    if pd.api.types.is_timedelta64_dtype(column):
        return (np.datetime64(0, "us") + column.astype("timedelta64[us]").to_numpy()), "durations"
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    numbers = None if pd.api.types.is_bool_dtype(column) else column
    if not pd.api.types.is_numeric_dtype(column):
        is_mixed = column.map(lambda value: isinstance(value, str | int | float)).all()
        numbers = pd.to_numeric(column, errors="coerce") if is_mixed else None
    if numbers is None or numbers.isna().any():
        return _of_texts(column, where)
    return _of_numbers(numbers.to_numpy(dtype=np.float64), column, where)


def time_text(time: np.datetime64 | float) -> str:
    """Return a time as text for a message."""
    if isinstance(time, np.datetime64):
        return str(time.astype("datetime64[s]")).removesuffix("T00:00:00")
    return f"{time:g}"


def _of_numbers(
    numbers: NDArray[np.float64], column: pd.Series, where: str
) -> tuple[RowTimes, str]:
    if not np.isfinite(numbers).all():
        raise _no_times(column, ~np.isfinite(numbers), where)
    least, most = float(numbers.min()), float(numbers.max())
    is_whole = bool((numbers % 1 == 0).all())
    if is_whole and _YEARS[0] <= least and most <= _YEARS[1]:
        years = (numbers.astype(np.int64) - 1970).astype("datetime64[Y]")
        return years.astype("datetime64[us]"), "years"
    if is_whole and _DAYS[0] <= least and most <= _DAYS[1]:
        texts = pd.Series(numbers.astype(np.int64)).astype(str)
        dates = pd.to_datetime(texts, format="%Y%m%d", errors="coerce")
        if dates.notna().all():
            return dates.to_numpy().astype("datetime64[us]"), "dates"
    units = [unit for unit, (fewest, _) in _SINCE_1970.items() if least > 0 and most >= fewest]
    if not units:
        return numbers, "numbers without a unit"
    micros = np.round(numbers / _SINCE_1970[units[-1]][1]).astype(np.int64)
    since = micros.astype("datetime64[us]")
    return since, f"{units[-1]} since 1970"


def _of_texts(column: pd.Series, where: str) -> tuple[RowTimes, str]:
    distinct = column.drop_duplicates().reset_index(drop=True)
    probed = distinct.iloc[:_PROBED]
    formats = _FORMATS if utc_of(probed, "", ())[1].any() else ("",)
    n_bad = {written: int(utc_of(probed, written, ())[1].sum()) for written in formats}
    least = min(n_bad.values())
    read = [utc_of(distinct, written, ()) for written in formats if n_bad[written] == least]
    times, is_bad = min(read, key=lambda one: int(one[1].sum()))
    if is_bad.any():
        raise _no_times(column, column.isin(distinct[is_bad]).to_numpy(dtype=bool), where)
    if any(not other.equals(times) for other, is_bad in read if not is_bad.any()):
        raise BadInput(
            f"in column {column.name!r} of {where}, day and month may be in either order, as in "
            f"{distinct.iloc[0]!r}",
            option="time",
            value=str(column.name),
            remedy="write the times in ISO 8601, such as 2024-12-31",
        )
    position = pd.Index(distinct).get_indexer(pd.Index(column))
    return times.to_numpy().astype("datetime64[us]")[position], "times"


def _no_times(column: pd.Series, is_bad: NDArray[np.bool_], where: str) -> BadInput:
    rows = np.flatnonzero(is_bad)
    shown = ", ".join(f"{column.iloc[row]!r} in row {row + 1}" for row in rows[:_SHOWN].tolist())
    more = ", ..." * (len(rows) > _SHOWN)
    return BadInput(
        f"column {column.name!r} of {where} has {len(rows)} of {len(column)} values that are not "
        f"times: {shown}{more}",
        option="time",
        value=str(column.name),
        remedy="write times in ISO 8601 (2024-05-01 or 2024-05-01T12:30:00), as years, or as "
        "seconds since 1970",
    )


_DATE = r"\d{4}-?\d{2}-?\d{2}"
_CLOCK = r"\d{2}(?::?\d{2}(?::?\d{2}(?:\.\d+)?)?)?"
_MIDNIGHT_CLOCK = r"00(?::?00(?::?00(?:\.0+)?)?)?"
_ZONE = r"(?: ?(?:Z|[+-]\d{2}(?::?\d{2})?))?"


@dataclass(frozen=True, slots=True)
class Times:
    """Times of a column, and whether each time includes a time of day.

    Attributes:
        utc: Times in UTC; missing times stay missing.
        is_date: Whether each time is a date without a time of day.
        is_midnight: Whether each time is midnight in its recorded time zone; true for dates.
    """

    utc: pd.Series
    is_date: pd.Series
    is_midnight: pd.Series

    @classmethod
    def of(cls, column: pd.Series, where: str) -> Self:
        """Read times or ISO 8601 strings; UTC unless a zone is given. May raise `BadInput`."""
        example = "write times in ISO 8601, such as 2024-05-01 or 2024-05-01T12:30:00"
        if pd.api.types.is_numeric_dtype(column) and column.notna().any():
            raise BadInput(f"{where} has numbers in its time column {column.name!r}; {example}")
        if pd.api.types.is_datetime64_any_dtype(column):
            noted = column.dt.tz_localize(None)
            is_date = pd.Series(data=False, index=column.index)
            return cls(naive_utc(column), is_date, noted == noted.dt.normalize())
        texts = column.astype("string").str.strip()
        is_known = _matches(texts, f"{_DATE}(?:[T ]{_CLOCK}{_ZONE})?")
        times = pd.to_datetime(texts.where(is_known), utc=True, errors="coerce", format="ISO8601")
        bad = column[times.isna() & column.notna()]
        if len(bad):
            raise BadInput(
                f"{where} has {len(bad)} unreadable times in column {column.name!r}, such "
                f"as {str(bad.iloc[0])!r}; {example}"
            )
        is_date = _matches(texts, _DATE)
        is_midnight = is_date | _matches(texts, f"{_DATE}[T ]{_MIDNIGHT_CLOCK}{_ZONE}")
        return cls(naive_utc(times), is_date, is_midnight)


def utc_times(column: pd.Series, where: str, *, at_end_of_day: bool) -> pd.Series:
    """Convert times, or strings in ISO 8601, to UTC; without a zone, UTC is assumed.

    A date without a time of day becomes the start of the day or, with `at_end_of_day`, the end, so
    that events do not leak into predictions made on the same day. Missing times stay missing.

    Raises:
        BadInput: If a time does not parse.
    """
    times = Times.of(column, where)
    return end_of_day(times.utc, times.is_date) if at_end_of_day else times.utc


def end_of_day(times: pd.Series, is_date: pd.Series) -> pd.Series:
    """Move times that are dates to the last microsecond of their day."""
    return times.mask(is_date, times + pd.Timedelta(days=1) - pd.Timedelta(1, "us"))


def _matches(texts: pd.Series, pattern: str) -> pd.Series:
    return texts.str.fullmatch(pattern).fillna(value=False).astype(bool)
