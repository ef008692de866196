"""Reader of table rows, using the column kinds inferred by the study.

A cell means the same in a CSV file, a Parquet file and a DataFrame, regardless of other rows. The
reader is the first step of an exported model, so it needs only numpy, pandas and scikit-learn.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import date, time, timedelta
from decimal import Decimal
from functools import cache, partial
from numbers import Number
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import HashingVectorizer

from prefect_tune.tasks.data.notation import PLAIN, TRUTHS, Notation, as_number, is_texts
from prefect_tune.tasks.data.source import GAPS

Kind = Literal["number", "category", "date", "duration", "text"]
Values = NDArray[np.float64]

MOST = 1e32
"""Limit above which numbers count as missing, because larger numbers are placeholders and overflow
32-bit floats."""
_ISO = (
    r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?(?:Z|[+-]\d{2}(?::?\d{2})?))?)?"
)
_DURATION = (
    r"[+-]?(?:\d+ days?(?:,? [+-]?\d{1,2}:\d{2}:\d{2}(?:\.\d+)?)?|\d+:\d{2}:\d{2}(?:\.\d+)?)"
)
_WHOLE, _DECIMAL = r"[+-]?\d+(?:\.0)?", r"[+-]?\d+\.\d+"
_WITH_POINT_ZERO = r"-?(?:0|[1-9]\d{0,14})\.0"
_DAY_SECONDS = 86_400
_DATE_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "year": lambda days: days.year,
    "month": lambda days: days.month,
    "day": lambda days: days.day,
    "weekday": lambda days: days.day_of_week,
    "yearday": lambda days: days.day_of_year,
}


class UnreadableRows(ValueError):  # noqa: N818 - the name states the fault
    """Cells of new rows do not match the column kinds inferred by the study."""


@dataclass(frozen=True, slots=True)
class UnreadableCell:
    """A cell that does not match the column kind inferred by the study.

    Attributes:
        row: Position of the cell's row, counted from 0.
        column: Name of the cell's column.
        value: Value of the cell.
        expected: Description of the values that the column accepts.
    """

    row: int
    column: str
    value: Any
    expected: str


def unreadable_text(cells: Sequence[UnreadableCell], where: str) -> str:
    """Return the message about unreadable cells, with rows counted from 1."""
    first, n_rows = min(cells, key=lambda cell: cell.row), len({cell.row for cell in cells})
    more = f"; {n_rows} rows in all cannot be read" if n_rows > 1 else ""
    return (
        f"data row {first.row + 1} of {where} holds {first.value!r} in column {first.column!r}, "
        f"but the study learned {first.expected} there{more}"
    )


@dataclass(frozen=True)
class LearnedColumn:
    """Properties of a column inferred by the study.

    Attributes:
        name: Name of the column.
        kind: Kind of the values.
        format: Format of dates written as strings, for `strptime`; empty for ISO 8601.
        has_clock: Whether dates include a time of day.
        n_words: Number of features into which the words of a free text are hashed.
        notations: Notations of numbers written as strings; empty for numbers written by programs. A
            string is unreadable if two notations give different numbers.
        known: Categories of the column, as strings.
    """

    name: str
    kind: Kind
    format: str = ""
    has_clock: bool = False
    n_words: int = 0
    notations: tuple[Notation, ...] = ()
    known: tuple[str, ...] = field(default=(), compare=False)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features derived from the column."""
        if self.kind == "date":
            clock = ("hour",) if self.has_clock else ()
            return tuple(f"{self.name}.{part}" for part in ("days", *_DATE_PARTS, *clock))
        if self.kind == "text":
            width = len(str(self.n_words - 1))
            hashed = (f"{self.name}.word{n:0{width}}" for n in range(self.n_words))
            return (f"{self.name}.words", *hashed)
        return (self.name,)

    @property
    def expected(self) -> str:
        """Description of the accepted values, for messages."""
        if self.kind == "date":
            return f"dates in {self.format or 'ISO 8601, such as 2024-05-01'}"
        if self.notations:
            return " or ".join(f"numbers{notation.text}" for notation in self.notations)
        return {"number": "finite numbers", "duration": "durations such as 1 days 02:30:00"}.get(
            self.kind, "texts"
        )


class RowReader(TransformerMixin, BaseEstimator):
    """Transformer of a user's rows into the features used by a study's models.

    Truth values become 1 and 0. A date becomes days since 1970 and calendar parts, in UTC. A
    duration becomes seconds; numbers in a column of durations count as seconds. Free text becomes a
    number of words and hashed words (Weinberger et al. 2009). A category becomes the string used in
    training. Unknown columns are ignored.

    Args:
        columns: Columns of the table, in the order of their features.
        missing: Strings that count as missing, in addition to the empty string.
    """

    def __init__(
        self, columns: Sequence[LearnedColumn] = (), missing: Sequence[str] = GAPS
    ) -> None:
        self.columns, self.missing = columns, missing

    @classmethod
    def of(cls, X: pd.DataFrame) -> Self:
        """Return the reader for features that need no conversion: numbers and categories.

        A known category such as "NA" stays a category, because earlier versions accepted such
        categories.
        """
        columns = [
            LearnedColumn(str(name), "category", known=tuple(X[name].cat.categories))
            if isinstance(X[name].dtype, pd.CategoricalDtype)
            else LearnedColumn(str(name), "number")
            for name in X
        ]
        known = {text for column in columns for text in column.known}
        return cls(tuple(columns), tuple(text for text in GAPS if text not in known))

    @classmethod
    def from_json(cls, document: Mapping[str, Any], X: pd.DataFrame) -> Self:
        """Return the reader from the output of `to_json`, with the categories of training rows."""
        # msgspec would attach an object to the class that an exported model cannot contain.
        known = {name: tuple(X[name].cat.categories) for name in X.select_dtypes("category")}
        columns = list[LearnedColumn]()
        for column in document["columns"]:
            notations = tuple(Notation(**notation) for notation in column["notations"])
            own = {"notations": notations, "known": known.get(column["name"], ())}
            columns.append(LearnedColumn(**{**column, **own}))
        return cls(tuple(columns), tuple(document["missing"]))

    def with_notations(self, other: Self | None) -> Self:
        """Return a reader with the notations of both readers (plain numbers if `other` is None)."""
        plain = (Notation(),)
        known = {c.name: c.notations or plain for c in other.columns} if other else {}
        columns = list[LearnedColumn]()
        for column in self.columns:
            own = column.notations or plain
            both = tuple(dict.fromkeys(own + known.get(column.name, own))) if other else plain
            columns.append(replace(column, notations=both if both != plain else ()))
        return type(self)(tuple(columns), self.missing)

    def to_json(self) -> dict[str, Any]:
        """Return the reader as JSON values, without the categories of the training rows."""
        columns = [asdict(column) for column in self.columns]
        for column in columns:
            del column["known"]
        return {"columns": columns, "missing": list(self.missing)}

    @property
    def names(self) -> list[str]:
        """Names of the required columns of new rows."""
        return [column.name for column in self.columns]

    @property
    def texts(self) -> list[str]:
        """Names of the columns to read as strings from a CSV file."""
        return [c.name for c in self.columns if c.kind != "number" or c.notations]

    @property
    def is_plain(self) -> bool:
        """Whether `of` could return this reader."""
        kinds = {column.kind for column in self.columns}
        has_notations = any(column.notations for column in self.columns)
        is_usual = set(self.missing) == set(GAPS) and not has_notations
        return is_usual and kinds <= {"number", "category"}

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Return self, because the reader has nothing to learn."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the required columns, shape (d,)."""
        return np.array(self.names, dtype=object)

    @property
    def n_features_in_(self) -> int:
        """Number of required columns."""
        return len(self.columns)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:  # noqa: ARG002
        """Return the names of the features used by models."""
        return np.array([name for c in self.columns for name in c.features], dtype=object)

    def transform(self, X: Any) -> pd.DataFrame:
        """Return the features of n rows: a DataFrame, or an array (n, d) in column order.

        Raises:
            UnreadableRows: If a cell does not match the column's kind; the message contains the
                row, column and value.
            ValueError: If a column is missing.
        """
        X = as_pandas(X)
        if not isinstance(X, pd.DataFrame):
            X = pd.DataFrame(np.asarray(X), columns=self.names)
        read, cells = self.read(X)
        if cells:
            raise UnreadableRows(unreadable_text(cells, "the data"))
        return read

    def read(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, list[UnreadableCell]]:
        """Return the features of n rows, and the unreadable cells, which become missing.

        Columns may be in any order. The features derived from a column may replace the column.

        Raises:
            ValueError: If a column is missing.
        """
        frame = frame.set_axis([joined_name(name) for name in frame.columns], axis=1)
        read: dict[str, Any] = {}
        cells: list[UnreadableCell] = []
        for column in self.columns:
            parts = [column]
            if column.name not in frame:
                parts = [LearnedColumn(name, "number") for name in column.features]
            if not {part.name for part in parts} <= set(frame.columns):
                raise ValueError(f"the data has no column {column.name!r}")
            for part in parts:
                given = plain_column(frame[part.name].reset_index(drop=True))
                made, is_bad = _READ[part.kind](given, part, self.missing)
                read |= made
                rows = np.flatnonzero(is_bad).tolist()
                cells += [
                    UnreadableCell(row, part.name, given.iloc[row], part.expected) for row in rows
                ]
        return pd.DataFrame(read, pd.RangeIndex(len(frame)), copy=False), cells


def as_pandas(values: Any) -> Any:
    """Return a frame or column of any library as a pandas object; keep other values unchanged."""
    if isinstance(values, pd.DataFrame | pd.Series | np.ndarray | list | tuple):
        return values
    with suppress(ImportError):  # exported models also work where narwhals is not installed
        import narwhals as nw  # noqa: PLC0415

        found = nw.from_native(values, allow_series=True, pass_through=True)
        if found is values and hasattr(values, "__arrow_c_stream__"):
            found = nw.from_arrow(values, backend="pyarrow")
        if isinstance(found, nw.LazyFrame):
            found = found.collect()
        if isinstance(found, nw.DataFrame) and not found.implementation.is_pandas_like():
            return found.to_arrow().to_pandas(types_mapper=pd.ArrowDtype)
        if isinstance(found, nw.DataFrame | nw.Series):
            return found.to_pandas()
    return values


EXACT = 2**53
"""Largest integer up to which floats are exact."""


def plain_column(column: pd.Series) -> pd.Series:
    """Return a column in a type independent of its library and of the unit of dates."""
    kind: Any = column.dtype
    if isinstance(kind, pd.ArrowDtype):
        cells = column.array.__arrow_array__()
        plain = cells.to_pandas(date_as_object=False, integer_object_nulls=True)
        column = pd.Series(plain.array, column.index, name=column.name)
    elif hasattr(kind, "numpy_dtype"):  # nullable numbers or truth values
        has_type = kind.kind == "f" or not column.hasnans
        column = column.astype(kind.numpy_dtype if has_type else object)
    if column.dtype == object:
        found = pd.api.types.infer_dtype(column, skipna=True)
        if found == "date":
            column = column.astype("datetime64[us]")
        elif found == "integer" and (column.dropna().abs() <= EXACT).all():
            column = pd.to_numeric(column.where(column.notna(), None))
    is_date = pd.api.types.is_datetime64_any_dtype(column.dtype)
    return column.dt.as_unit("us") if is_date else column


def joined_name(name: Any) -> str:
    """Return the name of a column as a string, with its levels joined."""
    return "_".join(filter(None, map(str, name))) if isinstance(name, tuple) else str(name)


Read = tuple[dict[str, Any], NDArray[np.bool_]]
"""Features by name, and a mask of the rows with unreadable cells."""


def is_gap(column: pd.Series, missing: Collection[str]) -> NDArray[np.bool_]:
    """Return whether each cell is missing: empty or in `missing`; "9" also matches the number 9."""
    kind, empty = column.dtype, column.isna().to_numpy(dtype=bool, copy=True)
    texts = {"", *missing}
    numbers = {float(text) for text in texts if PLAIN.fullmatch(text)}
    if pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind):
        if numbers:
            values = column.to_numpy(dtype=np.float64, na_value=np.nan)
            empty |= np.isin(values, list(numbers))
    elif isinstance(kind, pd.StringDtype | pd.CategoricalDtype) and not numbers:
        empty |= column.isin(list(texts)).to_numpy(dtype=bool, na_value=False)
    elif is_texts(column) or isinstance(kind, pd.CategoricalDtype):

        def is_named(cell: Any) -> bool:
            if isinstance(cell, str):
                is_number = bool(numbers) and PLAIN.fullmatch(cell) is not None
                return cell in texts or (is_number and float(cell) in numbers)
            is_number = isinstance(cell, Number | Decimal) and not isinstance(cell, bool | np.bool_)
            return is_number and cell in numbers

        cells = column.astype(object)
        empty |= np.fromiter(map(is_named, cells), bool, len(cells))
    return empty


def without_gaps(column: pd.Series, missing: Collection[str]) -> pd.Series:
    """Return a column with strings in `missing` replaced with empty cells."""
    gap = is_gap(column, missing)
    return column.mask(gap) if gap.any() else column


def _numbers(column: pd.Series, learned: LearnedColumn, missing: Collection[str]) -> Read:
    """Read numbers, or durations in seconds; all other cells are unreadable."""
    gap, kind, is_duration = is_gap(column, missing), column.dtype, learned.kind == "duration"
    values, is_bad = np.full(len(column), np.nan), np.zeros(len(column), dtype=bool)
    if is_duration and pd.api.types.is_timedelta64_dtype(kind):
        values = column.dt.total_seconds().to_numpy(dtype=np.float64, copy=True)
    elif pd.api.types.is_numeric_dtype(kind):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    else:
        read = seconds_of if is_duration else partial(as_number, notations=learned.notations)
        there = column.astype(object).to_numpy()[~gap]
        values[~gap] = np.fromiter(map(read, there), np.float64, len(there))
        is_bad = np.isinf(values)
    values[gap | (np.abs(values) > MOST)] = np.nan
    return {learned.name: values}, is_bad


def seconds_of(value: Any) -> float:
    """Return the seconds of a duration or time of day; infinity for other values."""
    if isinstance(value, time):
        value = str(value.replace(tzinfo=None))
    if isinstance(value, str) and not re.fullmatch(_DURATION, value := value.strip()):
        return np.inf
    is_duration = isinstance(value, str | timedelta | np.timedelta64)
    return float(pd.Timedelta(value).total_seconds()) if is_duration else np.inf


def _categories(column: pd.Series, learned: LearnedColumn, missing: Collection[str]) -> Read:
    gap, category = is_gap(column, missing), _category_finder(learned.known)
    there = with_exact_floats(column)[~gap]
    if column.dtype == object:
        number, values = pd.factorize(there.map(category).astype(object))
        texts = [*values]
    else:  # all values have the same type, so equal values have equal strings
        number, values = pd.factorize(there)
        texts = [category(value) for value in values]
    names = sorted(set(texts))
    place = {name: position for position, name in enumerate(names)}
    codes = np.full(len(column), -1, dtype=np.int32)
    codes[~gap] = np.array([place[text] for text in texts], dtype=np.int32)[number]
    made = pd.Categorical.from_codes(codes, categories=pd.Index(names, dtype=object))
    return {learned.name: made}, np.zeros(len(column), dtype=bool)


def with_exact_floats(column: pd.Series) -> pd.Series:
    """Convert 16-bit or 32-bit floats to the 64-bit floats with the same shortest decimal."""
    kind = str(column.dtype).lower()
    if kind.startswith(("float32", "float16", "float[", "halffloat")):
        return column.map(lambda value: float(str(np.float32(value))), na_action="ignore")
    return column


def category_texts(column: pd.Series) -> pd.Series:
    """Return category values as strings; 1.0 becomes `1` if all are integers.

    Missing values stay missing.
    """
    if pd.api.types.is_datetime64_any_dtype(column):
        return column.astype(str).astype(object).where(column.notna(), None)
    if pd.api.types.is_float_dtype(column):
        there = column.dropna()
        if bool(((there % 1 == 0) & (there.abs() < EXACT)).all()):
            column = column.astype("Int64")
    values = with_exact_floats(column).astype(object)
    texts = values.where(values.notna(), None).map(str, na_action="ignore")
    return without_point_zero(texts)


def without_point_zero(texts: pd.Series) -> pd.Series:
    """Drop the `.0` that a table with missing values adds to integers.

    If any code lacks the `.0`, all codes stay unchanged, because `250.0` and `250` may be
    different.
    """
    there = texts.dropna().astype("string")
    if len(there) and bool(there.str.fullmatch(_WITH_POINT_ZERO).all()):
        return texts.map(lambda text: text.removesuffix(".0"), na_action="ignore")
    return texts


def _category_finder(known: Sequence[str]) -> Callable[[Any], str]:
    """Return a function that finds the known category of a value, even if spelled differently.

    A file with missing values writes 1 as 1.0, pandas reads 00501 as 501, and other programs write
    true for True, or append midnight to a date. If exactly one known category has the same meaning
    as the value, the value becomes this category. Other values stay as written.
    """
    texts = frozenset(known)

    @cache
    def by_meaning() -> Mapping[Any, list[str]]:
        found: dict[Any, list[str]] = {}
        for text in texts:
            is_decimal = re.fullmatch(_DECIMAL, text) and not re.fullmatch(_WHOLE, text)
            meaning = ("decimal", float(text)) if is_decimal else _meaning(text)
            found.setdefault(meaning, []).append(text)
        return found

    def category(value: Any) -> str:
        text = str(value)
        if text in texts:
            return text
        meaning = _meaning(value)
        same = by_meaning().get(meaning, [])
        if not isinstance(value, str):  # the strings 250.0 and 250.00 may be different codes
            same = [*same, *by_meaning().get(("decimal", meaning), [])]
        return same[0] if len(same) == 1 else text

    return category


def _meaning(value: Any) -> Any:
    """Return the common value of all spellings of a number, truth value or date.

    Strings such as 250.00 and 1E5 may be codes, so only integers are converted.
    """
    text = value.strip() if isinstance(value, str) else ""
    is_number = text in TRUTHS or re.fullmatch(_WHOLE, text) if text else True
    if is_number and np.isfinite(number := as_number(value)):
        return number
    if isinstance(value, date | np.datetime64) or re.fullmatch(_ISO, text):
        with suppress(ValueError):
            moment = pd.Timestamp(text or value)
            return moment if moment.tzinfo is None else moment.tz_convert("UTC").tz_localize(None)
    return str(value)


def _dates(column: pd.Series, learned: LearnedColumn, missing: Collection[str]) -> Read:
    times, is_bad = utc_of(column, learned.format, missing)
    index = pd.DatetimeIndex(times)
    micros = times.to_numpy().view(np.int64).astype(np.float64)
    is_empty = times.isna().to_numpy()
    seconds = np.where(is_empty, np.nan, micros / 1e6)
    features: dict[str, Any] = {f"{learned.name}.days": seconds / _DAY_SECONDS}
    for part, of in _DATE_PARTS.items():
        features[f"{learned.name}.{part}"] = np.asarray(of(index), dtype=np.float64)
    if learned.has_clock:
        features[f"{learned.name}.hour"] = seconds % _DAY_SECONDS / 3600
    return features, is_bad


def utc_of(
    column: pd.Series, written: str, missing: Collection[str]
) -> tuple["pd.Series[Any]", NDArray[np.bool_]]:
    """Return UTC dates with microsecond resolution, and a mask of unreadable cells.

    `written` is the `strptime` format of strings; empty for ISO 8601. Strings in `missing` are not
    read.
    """
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    if isinstance(column.dtype, np.dtype | pd.DatetimeTZDtype) and column.dtype.kind == "M":
        return naive_utc(column), np.zeros(len(column), dtype=bool)
    gap, cells = is_gap(column, missing), column.astype(object)
    times = pd.Series(np.full(len(column), "NaT", dtype="datetime64[us]"))
    is_text = cells.map(lambda value: isinstance(value, str)).to_numpy(dtype=bool)
    is_date = cells.map(lambda value: isinstance(value, date | np.datetime64)).to_numpy(dtype=bool)
    if (rows := is_text & ~gap).any():
        texts = cells[rows].astype("string").str.strip()
        is_iso = texts.str.fullmatch(_ISO).fillna(value=False)
        found = pd.to_datetime(texts.where(is_iso), format="ISO8601", utc=True, errors="coerce")
        if written:
            other = pd.to_datetime(texts, format=written, utc=True, errors="coerce")
            found = found.fillna(other)
        times[rows] = naive_utc(found)
    if (rows := is_date & ~gap).any():
        times[rows] = naive_utc(pd.to_datetime(cells[rows], utc=True, errors="coerce"))
    return times, ~gap & times.isna().to_numpy()


def naive_utc(times: "pd.Series[Any]") -> "pd.Series[Any]":
    """Convert times to UTC with microsecond resolution, and drop the time zone."""
    return pd.to_datetime(times, utc=True).dt.tz_localize(None).astype("datetime64[us]")


def _words(column: pd.Series, learned: LearnedColumn, missing: Collection[str]) -> Read:
    gap = is_gap(column, missing)
    texts = ["" if empty else str(cell) for cell, empty in zip(column, gap, strict=True)]
    n_words = np.array([len(text.split()) for text in texts], dtype=np.float64)
    n_words[gap] = np.nan
    hashed = np.zeros((0, learned.n_words))
    if texts:
        hashed = HashingVectorizer(n_features=learned.n_words).transform(texts).toarray()
    features = dict(zip(learned.features[1:], hashed.T, strict=True))
    return {learned.features[0]: n_words, **features}, np.zeros(len(column), dtype=bool)


_READ: Mapping[Kind, Callable[["pd.Series[Any]", LearnedColumn, Collection[str]], Read]] = {
    "number": _numbers,
    "category": _categories,
    "date": _dates,
    "duration": _numbers,
    "text": _words,
}
