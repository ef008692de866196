"""Times of events and labels: in UTC, to the microsecond, and dates on the safe side."""

import pandas as pd

from prefect_tune.tasks.bad_input import BadInput

__all__ = ["end_of_day", "utc_times"]

_DATE = r"\d{4}-?\d{2}-?\d{2}"


def utc_times(column: pd.Series, where: str, *, at_end_of_day: bool) -> pd.Series:
    """Times in UTC; one without a zone is UTC already.

    Args:
        column: Times, or texts as ISO 8601 writes them; gaps stay.
        where: What to call the table in a message.
        at_end_of_day: Whether a date without a time is the end of its day, as events need it so
            that they do not leak into predictions of that day; else it is its start.

    Raises:
        BadInput: If one does not parse.
    """
    example = "times are dates as ISO 8601 writes them: 2024-05-01 or 2024-05-01T12:30:00"
    if pd.api.types.is_numeric_dtype(column) and column.notna().any():
        raise BadInput(f"{where} has numbers in its time column {column.name!r}; {example}")
    if pd.api.types.is_datetime64_any_dtype(column):
        return pd.to_datetime(column, utc=True).dt.tz_localize(None).astype("datetime64[us]")
    texts = column.astype("string")
    times = pd.to_datetime(texts, utc=True, errors="coerce", format="ISO8601")
    bad = column[(times.isna() | (texts.str.len() < len("20240501"))) & column.notna()]
    if len(bad):
        raise BadInput(
            f"{where} has {len(bad)} times that do not parse in its column {column.name!r}, for "
            f"instance {str(bad.iloc[0])!r}; {example}"
        )
    naive = times.dt.tz_localize(None).astype("datetime64[us]")
    if at_end_of_day:
        is_date = texts.str.fullmatch(_DATE).fillna(value=False).astype(bool)
        naive = end_of_day(naive, is_date)
    return naive


def end_of_day(times: pd.Series, is_date: pd.Series) -> pd.Series:
    """Times, of which those that are dates move to the last microsecond of their day."""
    return times.mask(is_date, times + pd.Timedelta(days=1) - pd.Timedelta(1, "us"))
