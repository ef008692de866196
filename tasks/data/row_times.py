"""Times of the rows of a table: dates, years, seconds since 1970, or numbers that give an order.

Folds that look forward in time need them. The column of the times is not a feature.
"""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.columns import DATE_FORMATS
from prefect_tune.tasks.data.row_reader import is_gap, utc_of
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
    bad_by_format = {written: int(utc_of(probed, written, ())[1].sum()) for written in formats}
    fewest = min(bad_by_format.values())
    read = {
        written: utc_of(distinct, written, ())
        for written, n_bad in bad_by_format.items()
        if n_bad == fewest
    }
    fewest = min(int(is_bad.sum()) for _, is_bad in read.values())
    best = [(times, is_bad) for times, is_bad in read.values() if int(is_bad.sum()) == fewest]
    times, is_bad = best[0]
    if is_bad.any():
        raise _no_times(column, column.isin(distinct[is_bad]).to_numpy(dtype=bool), where)
    if any(not other.equals(times) for other, _ in best[1:]):
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
