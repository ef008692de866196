"""Times of rows of tables, and of events and labels.

Folds that look forward in time need the times of rows: dates, years, seconds since 1970, or numbers
that give an order. The column of the times is not a feature.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.row_reader import is_gap, naive_utc, utc_of
from prefect_tune.tasks.data.schema import DATE_FORMATS
from prefect_tune.tasks.data.source import GAPS

RowTimes = NDArray[np.datetime64] | NDArray[np.float64]
"""Times of n rows, shape (n,): UTC to the microsecond, or numbers without a unit."""

_FORMATS = ("", "%Y-%m", *DATE_FORMATS)
"""Formats of times in texts; an empty one is ISO 8601."""
_PROBED = 1_000
"""Distinct texts by which the format is found."""
_SHOWN = 3
"""Most bad values that a message names."""
_YEARS, _DAYS = (1000, 2999), (1000_01_01, 2999_12_31)
"""Whole numbers that are years, and dates such as 20240501."""
_SINCE_1970 = {"s": 1e8, "ms": 1e11, "us": 1e14, "ns": 1e17}
"""Least of the largest number in a column that counts since 1970, by unit."""
_MIDNIGHT = re.compile(r"[T ]00:00(:00(\.0+)?)?$")


def row_times(column: pd.Series, where: str, missing: Sequence[str] = GAPS) -> tuple[RowTimes, str]:
    """Return the time of each row, and how the values were read.

    Raises `BadInput`, with values and rows counted from 1, if a time is missing or does not parse.
    """
    column = column.reset_index(drop=True)
    gap = is_gap(column, missing)
    if gap.any():
        raise BadInput(
            f"column {column.name!r} of {where} has no time in {gap.sum()} of {len(gap)} rows, "
            f"such as row {np.flatnonzero(gap)[0] + 1}",
            option="time",
            value=str(column.name),
            remedy="fill in or remove these rows",
        )
    if pd.api.types.is_timedelta64_dtype(column):
        return (np.datetime64(0, "us") + column.astype("timedelta64[us]").to_numpy()), "durations"
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    numbers = _numbers(column)
    return _of_texts(column, where) if numbers is None else _of_numbers(numbers, column, where)


def check_times_differ(times: RowTimes, column: str, where: str) -> None:
    """Raise `BadInput` unless at least two rows have different times."""
    if len(times) and (times == times[0]).all():
        raise BadInput(
            f"column {column!r} of {where} has the same time in all rows "
            f"({time_text(times[0])}), so no row is newer than another",
            option="time",
            value=column,
            remedy="name another column, or omit the option",
        )


def time_text(time: np.datetime64 | float) -> str:
    """Return a time for a message."""
    if isinstance(time, np.datetime64):
        return _MIDNIGHT.sub("", str(time.astype("datetime64[s]")))
    return f"{time:g}"


def _numbers(column: pd.Series) -> NDArray[np.float64] | None:
    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        return None
    if isinstance(column.dtype, pd.PeriodDtype):
        return None
    if not pd.api.types.is_numeric_dtype(column):
        if not column.map(lambda value: isinstance(value, str | int | float)).all():
            return None
        column = pd.to_numeric(column, errors="coerce")
        if column.isna().any():
            return None
    return column.to_numpy(dtype=np.float64)


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
    units = [unit for unit, from_here in _SINCE_1970.items() if least > 0 and most >= from_here]
    if not units:
        return numbers, "numbers without a unit"
    per_second = {"s": 1e-6, "ms": 1e-3, "us": 1.0, "ns": 1e3}[units[-1]]
    since = np.round(numbers / per_second).astype(np.int64).astype("datetime64[us]")
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
            remedy="write the times as ISO 8601 does, such as 2024-12-31",
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
        remedy="write times as ISO 8601 does (2024-05-01 or 2024-05-01T12:30:00), as years, or as "
        "seconds since 1970",
    )


_DATE = r"\d{4}-?\d{2}-?\d{2}"
_CLOCK = r"\d{2}(?::?\d{2}(?::?\d{2}(?:\.\d+)?)?)?"
_MIDNIGHT_CLOCK = r"00(?::?00(?::?00(?:\.0+)?)?)?"
_ZONE = r"(?: ?(?:Z|[+-]\d{2}(?::?\d{2})?))?"


@dataclass(frozen=True, slots=True)
class Times:
    """Times of a column, with their precision.

    Attributes:
        utc: The times in UTC; gaps stay.
        is_date: Whether each is a date without a time.
        is_midnight: Whether each is at midnight in its recorded time zone; true for dates.
    """

    utc: pd.Series
    is_date: pd.Series
    is_midnight: pd.Series

    @classmethod
    def of(cls, column: pd.Series, where: str) -> Self:
        """Read times, or texts in ISO 8601; UTC by default. BadInput if one does not parse."""
        example = "times are dates as ISO 8601 writes them: 2024-05-01 or 2024-05-01T12:30:00"
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
                f"{where} has {len(bad)} times that do not parse in its column {column.name!r}, "
                f"for instance {str(bad.iloc[0])!r}; {example}"
            )
        is_date = _matches(texts, _DATE)
        is_midnight = is_date | _matches(texts, f"{_DATE}[T ]{_MIDNIGHT_CLOCK}{_ZONE}")
        return cls(naive_utc(times), is_date, is_midnight)


def utc_times(column: pd.Series, where: str, *, at_end_of_day: bool) -> pd.Series:
    """Convert times, or texts in ISO 8601, to UTC, the default time zone; gaps stay.

    A date without a time becomes the start of its day. With `at_end_of_day`, it becomes the end, so
    that events do not leak into predictions of their day.

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
