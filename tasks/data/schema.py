"""The kind of each column of a table, learned once: numbers, categories, dates, durations, texts.

`RowReader` then reads the rows of the table, and all later rows, by these kinds.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from shlex import quote

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
    as_number,
    decimal_mark,
    is_texts,
    numbers_in,
)
from prefect_tune.tasks.data.row_reader import (
    MOST,
    LearnedColumn,
    RowReader,
    UnreadableCell,
    category_texts,
    is_gap,
    seconds_of,
    unreadable_text,
    utc_of,
)
from prefect_tune.tasks.data.source import GAPS

TEXT_VALUES = 100
"""A column of texts with more values than this, most of them distinct, is not categorical."""
TEXT_SHARE = 0.5
_IDENTIFIER_SHARE = 0.95
"""A column of single words with a larger share of distinct values only names the rows."""
_FEW_ROWS = 20
"""In a column of more rows than this, distinct whole numbers may only name the rows."""
_MOST_HASHED, _ALL_HASHED, _LEAST_HASHED = 128, 256, 16
"""Columns of hashed words: most for one text, most for all texts, and fewest for one of many."""
_HASHED_CELLS = 50_000_000
"""Most cells of hashed words in a table (400 MB), unless earlier studies of a series need more."""
_TEXT_WORDS = 2
"""Least average number of words in the values of a free text."""
_PROBED = 1_000
"""Values inspected to distinguish texts from names, and lists from single values."""
_DATE_LIKE = re.compile(r"\d{1,4}[-./ ](?:\d{1,2}|[A-Za-z]{3})[-./ ]\d{1,4}(?:[T ].*)?")
_LONG_YEARS = ("%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y")
_OTHER_DAYS = ("%d.%m.%y", "%m/%d/%y", "%d/%m/%y", "%d-%b-%Y", "%d %b %Y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
DATE_FORMATS = tuple(day + clock for day in (*_LONG_YEARS, *_OTHER_DAYS) for clock in _CLOCKS)
"""Formats of dates in texts, apart from ISO 8601."""


def features_of(  # noqa: PLR0917 - what options say of columns
    frame: pd.DataFrame,
    drop: Sequence[str],
    categorical: Sequence[str],
    where: str,
    missing: Sequence[str] = GAPS,
    whole: Sequence[str] = (),
    texts: Sequence[tuple[str, int]] = (),
) -> tuple[pd.DataFrame, RowReader, list[str]]:
    """Learn the kinds of a table's columns, and read its rows.

    Args:
        frame: The table without its target.
        drop: Columns to skip.
        categorical: Columns to treat as categories, whatever their values.
        where: Name of the table in messages.
        missing: Texts that count as gaps.
        whole: Columns that must stay one column, because a constraint takes its groups from them.
        texts: Columns of texts in earlier studies of a series, which keep their kind: names, and
            numbers of hashed words, 0 for categories.

    Returns:
        The features in canonical form, the reader of such rows, and notes for the user.

    Raises:
        BadInput: If a named column is missing, or if none is left.
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
                notes.append(f"column {name} holds values of type {held}, taken as texts")
    if not columns:
        why = "".join(f"; {', '.join(names)}: {reason}" for reason, names in left_out.items())
        raise BadInput(f"{where} has no column left to learn from{why}")
    reader = RowReader(_with_hashed(columns, len(frame), earlier), tuple(missing))
    features = Counter(name for column in reader.columns for name in column.features)
    if doubled := [name for name, n in features.items() if n > 1]:
        raise BadInput(
            f"{where} has a column {doubled[0]!r}, which is the name of a part of another column's "
            "dates or texts; rename it"
        )
    X, _ = reader.read(frame)
    notes += [f"left out: {shown_columns(names)} ({why})" for why, names in left_out.items()]
    notes += [*_notes(frame, X, reader), *_huge_notes(frame, X, reader)]
    return canonical(X), reader, notes


def _notes(frame: pd.DataFrame, X: pd.DataFrame, reader: RowReader) -> Iterator[str]:
    """Yield notes on the kinds of columns that the user may want to have treated differently."""
    alike: dict[str | Notation, list[str]] = {}
    for column in reader.columns:
        name = column.name
        if column.kind in _BECAME:
            alike.setdefault(_BECAME[column.kind], []).append(name)
        if column.kind != "number":
            continue
        if is_texts(frame[name]):
            alike.setdefault((*column.notations, Notation())[0], []).append(name)
        if _is_identifier(X[name].to_numpy()):
            yield (
                f"column {name} holds a different whole number in each row; if it only identifies "
                f"the row, drop it with --drop {quote(name)}"
            )
    for how, names in alike.items():
        if text := how.of(frame[names[0]]) if isinstance(how, Notation) else how:
            yield f"{shown_columns(names)}: {text}"


_BECAME = {
    "date": "read as dates, in UTC: days since 1970 and calendar parts",
    "duration": "read as durations, in seconds",
    "text": "read as free text: the number of words, and hashed words",
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
                    f"column {name}: infinite numbers and those beyond {MOST:g} count as missing "
                    f"({n_huge} of {len(frame)})"
                )


def _with_hashed(
    columns: Sequence[LearnedColumn], n_rows: int, earlier: Mapping[str, int]
) -> tuple[LearnedColumn, ...]:
    """Return the columns; texts without a number of hashed words get what rows and texts allow."""
    texts = [column.name for column in columns if column.kind == "text"]
    n_words = {name: earlier[name] for name in texts if earlier.get(name)}
    if new := [name for name in texts if name not in n_words]:
        left = min(_ALL_HASHED, _HASHED_CELLS // max(n_rows, 1)) - sum(n_words.values())
        n_words |= dict.fromkeys(new, max(_LEAST_HASHED, min(_MOST_HASHED, left // len(new))))
    return tuple(replace(column, n_words=n_words.get(column.name, 0)) for column in columns)


def _learned(column: pd.Series, decimal: str) -> tuple[LearnedColumn | str, list[str]]:
    """Return the kind of a column of values without gaps, or why to skip it, and notes on texts.

    `decimal` is the decimal mark in texts of the table, if they decide it.
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
            return f"{numbers.within(column)}; --categorical keeps them as texts", []
        elif share > _IDENTIFIER_SHARE:
            learned = "a different text in almost every row; --categorical keeps it"
    learned, notes = learned or _category(column), list[str]()
    if isinstance(numbers, NoNumbers):
        notes = [f"column {name} holds {numbers.within(column)}, so it is not read as numbers"]
    if isinstance(learned, str) or learned.kind == "category":
        notes += _date_notes(values, are_dates, formats)
    if isinstance(learned, LearnedColumn) and learned.kind == "category":
        if numbers is None and len(values) > TEXT_VALUES:
            others = [text for text in learned.known if not np.isfinite(as_number(text, _PEOPLE))]
            strays = others if len(others) < len(learned.known) / 2 else ()
        if strays:
            notes.append(
                f"column {name} holds numbers and other values, such as {strays[0]!r}, so it is "
                f"taken as texts; if that is a gap, name it with --na-values {quote(strays[0])}"
            )
    return learned, notes


_PEOPLE = (Notation(),)


def _are_dates(texts: pd.Series) -> dict[str, NDArray[np.bool_]]:
    """Return which texts are dates, by format; an empty format is ISO 8601."""
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
    """Yield a note on distinct texts with dates that do not make a column of dates."""
    how = "so it is taken as texts; write them as 2024-12-31"
    if formats:
        yield f"column {texts.name} may hold dates, but day and month may be in either order, {how}"
    elif are_dates and np.any([*are_dates.values()], axis=0).mean() >= LEAST_SHARE:
        most = max(are_dates.values(), key=np.sum)
        other = texts[~most]
        yield (
            f"column {texts.name} holds dates in several formats, such as {texts[most].iloc[0]!r} "
            f"and {other.iloc[0]!r} in row {other.index[0] + 1}, {how}"
        )


_NESTED = (list, tuple, dict, set, frozenset, np.ndarray, bytes)


def _refuse_strays(values: pd.Series, no_numbers: Sequence[str]) -> None:
    """Refuse texts that are numbers or dates, except for a few slips or spellings of a gap."""
    is_date = ~utc_of(values.reset_index(drop=True), "", ())[1]
    no_dates = values[~is_date] if is_date.mean() >= LEAST_SHARE else values.iloc[:0]
    for what, strays in (("numbers", values[values.isin(no_numbers)]), ("dates", no_dates)):
        if len(strays):
            first = strays.iloc[0]
            raise BadInput(
                f"column {values.name!r} holds {what} and {len(strays)} other values, such as "
                f"{first!r} in row {strays.index[0] + 1}",
                remedy=f"say that it is a gap with --na-values {quote(first)}, or take all values "
                f"as categories with --categorical {quote(str(values.name))}",
            )


def _holds_numbers(column: pd.Series) -> bool:
    kind = column.dtype
    if pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_bool_dtype(kind):
        return True
    return kind == np.dtype(object) and pd.api.types.infer_dtype(column, skipna=True) in NUMBERS


NUMBERS = {"integer", "floating", "mixed-integer-float", "decimal", "boolean"}
"""Types that pandas infers for objects that are numbers or truth values."""


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
    """Return new rows as the study learned its columns.

    Raises:
        BadInput: If a column is missing, or a cell is not of the learned kind (with its row).
    """
    X, cells = read_rows(frame, reader, where)
    if cells:
        raise BadInput(unreadable_text(cells, where))
    return X


def read_rows(
    frame: pd.DataFrame, reader: RowReader, where: str
) -> tuple[pd.DataFrame, list[UnreadableCell]]:
    """Return new rows as the study learned its columns, and the unreadable cells.

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
            f"column {name}: {len(values)} of {X[name].notna().sum()} values were not there in "
            f"training, such as {values.iloc[0]!r} in row {values.index[0] + 1}"
        )
    return canonical(X), cells


def unseen_values(X: pd.DataFrame, reader: RowReader) -> dict[str, pd.Series]:
    """Return the categories of new rows, as read, that training rows lack, by column."""
    found = {}
    for column in reader.columns:
        if column.kind == "category" and column.name in X:
            values = X[column.name].dropna().astype(object)
            if len(unseen := values[~values.isin(column.known)]):
                found[column.name] = unseen
    return found


_LOGGER = logging.getLogger(__name__)


def _is_identifier(numbers: NDArray[np.float64]) -> bool:
    """Return whether many numbers are whole and differ; most others show it in the first ones."""
    return len(numbers) > _FEW_ROWS and all(
        (part % 1 == 0).all() and len(np.unique(part)) == len(part)
        for part in (numbers[:_PROBED], numbers)
    )
