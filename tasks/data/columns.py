"""The kind of each column of a table, learned once: numbers, categories, dates, durations, texts.

`RowReader` then reads the rows of the table, and all later rows, by these kinds.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from shlex import quote

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.bad_input import BadInput, need_column, shown_columns
from prefect_tune.tasks.data.ids import are_whole, without_point_zero
from prefect_tune.tasks.data.notation import (
    LEAST_SHARE,
    Found,
    NoNumbers,
    Notation,
    WrittenNumbers,
    decimal_mark,
    is_texts,
    numbers_in,
)
from prefect_tune.tasks.data.row_reader import (
    MOST,
    LearnedColumn,
    RowReader,
    UnreadableCell,
    is_gap,
    seconds_of,
    unreadable_text,
    utc_of,
    with_exact_floats,
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
DATE_FORMATS = tuple(
    f"{day}{clock}"
    for day in (
        "%Y/%m/%d",
        "%d.%m.%Y",
        "%d/%m/%Y",
        "%m/%d/%Y",
        "%d-%m-%Y",
        "%m-%d-%Y",
        "%d.%m.%y",
        "%m/%d/%y",
        "%d/%m/%y",
        "%d-%b-%Y",
        "%d %b %Y",
    )
    for clock in ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
)
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
        BadInput: If a column is duplicated or missing, or if none is left.
    """
    doubled = frame.columns[frame.columns.duplicated()]
    if len(doubled):
        raise BadInput(f"{where} has two columns called {doubled[0]!r}; rename one")
    for named in (*drop, *categorical):
        need_column(named, frame.columns, where)
    frame = frame.drop(columns=list(drop))
    frame.columns = frame.columns.astype(str)
    columns, earlier, decimal = list[LearnedColumn](), dict(texts), decimal_mark(frame)
    left_out, notes = dict[str, list[str]](), list[str]()
    for name in frame.columns:
        column = frame[name][~is_gap(frame[name], missing)]
        is_category = name in categorical or (name in whole and not _holds_numbers(column))
        if is_category and len(column):
            learned: LearnedColumn | str = _category(name, column)
        else:
            found = numbers_in(column, decimal)
            learned = _as_before(name, column, earlier) or _learned(name, column, found, decimal)
            notes += [*_number_notes(column, learned, found), *_date_notes(column, learned)]
        if isinstance(learned, str):
            left_out.setdefault(learned, []).append(name)
        else:
            columns.append(learned)
    if not columns:
        why = "".join(f"; {', '.join(names)}: {reason}" for reason, names in left_out.items())
        raise BadInput(f"{where} has no column left to learn from{why}")
    reader = RowReader(_with_hashed(columns, len(frame), earlier), tuple(missing))
    _check_names(reader, where)
    X, _ = reader.read(frame)
    notes += [f"left out: {shown_columns(names)} ({why})" for why, names in left_out.items()]
    notes += [*_notes(frame, X, reader), *_huge_notes(frame, reader)]
    notes += _notes_on_earlier(reader, len(frame), categorical, earlier)
    return canonical(X), reader, notes


def _check_names(reader: RowReader, where: str) -> None:
    features = Counter(name for column in reader.columns for name in column.features)
    if doubled := [name for name, n in features.items() if n > 1]:
        raise BadInput(
            f"{where} has a column {doubled[0]!r}, which is the name of a part of another column's "
            "dates or texts; rename it"
        )


def _notes(frame: pd.DataFrame, X: pd.DataFrame, reader: RowReader) -> Iterator[str]:
    """Yield notes on columns of a frame that the user may want to have treated differently."""
    for name in (column.name for column in reader.columns if column.kind == "number"):
        if _is_identifier(X[name].to_numpy()):
            yield (
                f"column {name} holds a different whole number in each row; if it only identifies "
                f"the row, drop it with --drop {quote(name)}"
            )
    for column in reader.columns:
        name = column.name
        if column.kind != "category":
            continue
        if frame[name].dtype == np.dtype(object):
            gap = is_gap(frame[name], reader.missing)
            types = sorted({type(value).__name__ for value in frame[name][~gap]})
            if len(types) > 1:
                yield f"column {name} holds values of type {' and '.join(types)}, taken as texts"
    yield from _notation_notes(frame, reader)
    yield from _kind_notes(reader.columns)


def _notation_notes(frame: pd.DataFrame, reader: RowReader) -> Iterator[str]:
    """Yield a note on the columns of each notation, with an example."""
    named: dict[Notation, list[str]] = {}
    for column in reader.columns:
        if column.kind == "number" and is_texts(frame[column.name]):
            named.setdefault((*column.notations, Notation())[0], []).append(column.name)
    for notation, names in named.items():
        if how := notation.of(frame[names[0]]):
            yield f"{shown_columns(names)}: {how}"


def _number_notes(column: pd.Series, learned: LearnedColumn | str, found: Found) -> Iterator[str]:
    """Yield a note on texts with numbers that do not make a column of numbers."""
    if isinstance(learned, str):  # the reason is given where the column is left out
        return
    if isinstance(found, NoNumbers):
        yield f"column {column.name} holds {found.within(column)}, so it is not read as numbers"
        return
    if learned.kind != "category":
        return
    strays: Sequence[str] = ()
    if found is not None:
        strays = found.strays
    elif len(learned.known) > TEXT_VALUES:
        others = [text for text in learned.known if not np.isfinite(Notation().number(text))]
        strays = others if len(others) < len(learned.known) / 2 else ()
    if strays:
        yield (
            f"column {column.name} holds numbers and other values, such as {strays[0]!r}, so it is "
            f"taken as texts; if that is a gap, name it with --na-values {quote(strays[0])}"
        )


def _date_notes(column: pd.Series, learned: LearnedColumn | str) -> Iterator[str]:
    """Yield a note on texts with dates that do not make a column of dates."""
    is_category = isinstance(learned, str) or learned.kind == "category"
    if not is_category or pd.api.types.infer_dtype(column, skipna=True) != "string":
        return
    texts = column.drop_duplicates()
    if not _DATE_LIKE.fullmatch(str(texts.iloc[0]).strip()):
        return
    how = "so it is taken as texts; write them as 2024-12-31"
    if len(_date_formats(texts.reset_index(drop=True))) > 1:
        yield (
            f"column {column.name} may hold dates, but day and month may be in either order, {how}"
        )
        return
    stripped = texts.astype("string").str.strip()
    are_dates = [
        ~utc_of(texts.reset_index(drop=True), "", ())[1],
        *(
            pd.to_datetime(stripped, format=written, errors="coerce").notna().to_numpy()
            for written in DATE_FORMATS
        ),
    ]
    most = max(are_dates, key=np.sum)
    if np.any(are_dates, axis=0).mean() >= LEAST_SHARE and not most.all():
        other = texts[~most]
        yield (
            f"column {column.name} holds dates in several formats, such as {texts[most].iloc[0]!r} "
            f"and {other.iloc[0]!r} in row {other.index[0] + 1}, {how}"
        )


def _huge_notes(frame: pd.DataFrame, reader: RowReader) -> Iterator[str]:
    """Yield a note on each column with numbers that are too large for models."""
    for column in reader.columns:
        if column.kind != "number" or column.name not in frame:
            continue
        given = frame[column.name]
        if pd.api.types.is_float_dtype(given):
            n_huge = int((given.abs() > MOST).sum())
        elif is_texts(given):
            read = (*column.notations, Notation())[0].number
            texts = [text for text in given.dropna().unique() if isinstance(text, str)]
            n_huge = int(given.isin([text for text in texts if MOST < abs(read(text)) < inf]).sum())
        else:
            n_huge = 0
        if n_huge:
            yield (
                f"column {column.name}: infinite numbers and those beyond {MOST:g} count as "
                f"missing ({n_huge} of {len(frame)})"
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


def _notes_on_earlier(
    reader: RowReader, n_rows: int, categorical: Sequence[str], earlier: Mapping[str, int]
) -> Iterator[str]:
    """Yield notes on columns that would be read differently without earlier studies."""
    for column in reader.columns:
        is_kept = column.kind == "category" and column.name not in categorical
        is_diverse = len(column.known) > max(TEXT_VALUES, TEXT_SHARE * n_rows)
        if is_kept and is_diverse and earlier.get(column.name) == 0:
            yield (
                f"column {column.name} stays categorical, as in earlier studies of the series; "
                "another --series may read it as free text"
            )
    n_cells = n_rows * sum(column.n_words for column in reader.columns)
    if n_cells > _HASHED_CELLS and any(earlier.values()):
        yield (
            f"hashed words of free texts take {n_cells * 8e-9:.2g} GB, because texts keep their "
            "number of words in a series; another --series starts with fewer"
        )


def _kind_notes(columns: Sequence[LearnedColumn]) -> list[str]:
    became = {
        "date": "read as dates, in UTC: days since 1970 and calendar parts",
        "duration": "read as durations, in seconds",
        "text": "read as free text: the number of words, and hashed words",
    }
    named = {kind: [c.name for c in columns if c.kind == kind] for kind in became}
    return [f"{', '.join(named[kind])}: {text}" for kind, text in became.items() if named[kind]]


def _as_before(name: str, column: pd.Series, earlier: Mapping[str, int]) -> LearnedColumn | None:
    """Return the kind that a column of texts had in earlier studies; None for other columns."""
    if name not in earlier or pd.api.types.infer_dtype(column, skipna=True) != "string":
        return None
    return LearnedColumn(name, "text") if earlier[name] else _category(name, column)


def _learned(name: str, column: pd.Series, found: Found, decimal: str) -> LearnedColumn | str:
    """Return a column of values without gaps, with the numbers found in texts, or why to skip it.

    `decimal` is the decimal mark in texts of the table, if they decide it.
    """
    kind = column.dtype
    if not len(column) or pd.api.types.is_complex_dtype(kind):
        return "complex numbers" if len(column) else "no values"
    if isinstance(kind, pd.CategoricalDtype):
        is_plain = isinstance(found, WrittenNumbers) and found.is_plain
        return (not is_plain and _number(name, found)) or _category(name, column)
    if isinstance(kind, pd.PeriodDtype) or pd.api.types.is_datetime64_any_dtype(kind):
        return _date(name, column, "")
    if _holds_numbers(column):
        may_have_commas = decimal == "," and pd.api.types.is_integer_dtype(kind)
        return LearnedColumn(name, "number", notations=(Notation(","),) * may_have_commas)
    if pd.api.types.is_timedelta64_dtype(kind):
        return LearnedColumn(name, "duration")
    return _learned_of_objects(name, column, found)


def _learned_of_objects(name: str, column: pd.Series, numbers: Found) -> LearnedColumn | str:
    """Return the kind of a column of objects or texts, or the reason to skip it."""
    nested = next((v for v in column.iloc[:_PROBED] if isinstance(v, _NESTED)), None)
    if nested is not None:
        return f"values of type {type(nested).__name__}"
    found, values = pd.api.types.infer_dtype(column, skipna=True), column.drop_duplicates()
    if found in {"date", "datetime", "datetime64"}:
        return _date(name, column, "")
    if np.isfinite(seconds_of(values.iloc[0])) and np.isfinite([*map(seconds_of, values)]).all():
        return LearnedColumn(name, "duration")
    if found == "string" and len(formats := _date_formats(values.reset_index(drop=True))) == 1:
        return _date(name, column, formats[0])
    if (number := _number(name, numbers)) or found != "string":
        return number or _category(name, column)
    return _learned_of_texts(name, column, values, numbers)


def _number(name: str, found: Found) -> LearnedColumn | None:
    """Return a column if all its texts are numbers; None for any other column."""
    if not isinstance(found, WrittenNumbers) or found.strays:
        return None
    return LearnedColumn(name, "number", notations=(found.notation,) * (not found.is_plain))


def _learned_of_texts(
    name: str, column: pd.Series, values: pd.Series, numbers: Found
) -> LearnedColumn | str:
    """Return the kind of a column of texts by its distinct values, or the reason to skip it."""
    share = len(values) / len(column)
    if len(values) <= TEXT_VALUES or share <= TEXT_SHARE:
        return _category(name, column)
    _refuse_strays(name, values, numbers.strays if isinstance(numbers, WrittenNumbers) else ())
    if np.mean([len(text.split()) for text in values.iloc[:_PROBED]]) >= _TEXT_WORDS:
        return LearnedColumn(name, "text")
    if share > _IDENTIFIER_SHARE and isinstance(numbers, NoNumbers):
        return f"{numbers.within(column)}; --categorical keeps them as texts"
    if share > _IDENTIFIER_SHARE:
        return "a different text in almost every row; --categorical keeps it"
    return _category(name, column)


_NESTED = (list, tuple, dict, set, frozenset, np.ndarray, bytes)


def _refuse_strays(name: str, values: pd.Series, no_numbers: Sequence[str]) -> None:
    """Refuse texts that are numbers or dates, except for a few slips or spellings of a gap."""
    is_date = ~utc_of(values.reset_index(drop=True), "", ())[1]
    no_dates = values[~is_date] if is_date.mean() >= LEAST_SHARE else values.iloc[:0]
    for what, strays in (("numbers", values[values.isin(no_numbers)]), ("dates", no_dates)):
        if len(strays):
            first = strays.iloc[0]
            raise BadInput(
                f"column {name!r} holds {what} and {len(strays)} other values, such as {first!r} "
                f"in row {strays.index[0] + 1}",
                remedy=f"say that it is a gap with --na-values {quote(first)}, or take all values "
                f"as categories with --categorical {quote(name)}",
            )


def _holds_numbers(column: pd.Series) -> bool:
    kind = column.dtype
    if pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_bool_dtype(kind):
        return True
    return kind == np.dtype(object) and pd.api.types.infer_dtype(column, skipna=True) in _NUMBERS


_NUMBERS = {"integer", "floating", "mixed-integer-float", "decimal", "boolean"}
"""Types that pandas infers for objects that are numbers or truth values."""


def _category(name: str, column: pd.Series) -> LearnedColumn:
    known = category_texts(column).dropna().unique().tolist()
    return LearnedColumn(name, "category", known=tuple(sorted(known)))


def _date(name: str, column: pd.Series, written: str) -> LearnedColumn:
    times, _ = utc_of(column.reset_index(drop=True), written, ())
    has_clock = bool((times.dropna() != times.dropna().dt.normalize()).any())
    return LearnedColumn(name, "date", format=written, has_clock=has_clock)


def _date_formats(texts: pd.Series) -> list[str]:
    """Return the formats in which all texts are dates; an empty one is ISO 8601.

    The result has several formats if day and month may be in either order.
    """
    if not _DATE_LIKE.fullmatch(str(texts.iloc[0]).strip()):
        return []
    if not utc_of(texts, "", ())[1].any():
        return [""]
    stripped = texts.astype("string").str.strip()
    return [
        written
        for written in DATE_FORMATS
        if pd.to_datetime(stripped, format=written, errors="coerce").notna().all()
    ]


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
    for note in _huge_notes(frame, reader):
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


def category_texts(column: pd.Series) -> pd.Series:
    """Return category values as texts, with gaps kept; if all are whole, 1.0 becomes `1`."""
    if pd.api.types.is_datetime64_any_dtype(column):
        return column.astype(str).astype(object).where(column.notna(), None)
    if pd.api.types.is_float_dtype(column) and are_whole(column):
        column = column.astype("Int64")
    values = with_exact_floats(column).astype(object)
    texts = values.where(values.notna(), None).map(str, na_action="ignore")
    return without_point_zero(texts)
