"""Times of events and labels, in UTC to the microsecond, and dates without a time."""

from dataclasses import dataclass
from typing import Self

import pandas as pd

from prefect_tune.tasks.bad_input import BadInput

_DATE = r"\d{4}-?\d{2}-?\d{2}"
_CLOCK = r"\d{2}(?::?\d{2}(?::?\d{2}(?:\.\d+)?)?)?"
_MIDNIGHT = r"00(?::?00(?::?00(?:\.0+)?)?)?"
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
            return cls(_naive_utc(column), is_date, noted == noted.dt.normalize())
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
        is_midnight = is_date | _matches(texts, f"{_DATE}[T ]{_MIDNIGHT}{_ZONE}")
        return cls(_naive_utc(times), is_date, is_midnight)


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


def _naive_utc(times: pd.Series) -> pd.Series:
    return pd.to_datetime(times, utc=True).dt.tz_localize(None).astype("datetime64[us]")


def _matches(texts: pd.Series, pattern: str) -> pd.Series:
    return texts.str.fullmatch(pattern).fillna(value=False).astype(bool)
