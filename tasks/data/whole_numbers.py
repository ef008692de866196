"""Whole numbers that files write as floats, or as texts that must not lose a digit."""

import pandas as pd

__all__ = ["EXACT", "are_whole", "without_point_zero"]

EXACT = 2**53
"""Beyond this a float does not tell neighbouring whole numbers apart."""
_WITH_POINT_ZERO = r"-?(?:0|[1-9]\d{0,14})\.0"


def are_whole(numbers: pd.Series) -> bool:
    """Return whether all floats but gaps are whole numbers, and exact."""
    there = numbers.dropna()
    return bool(((there % 1 == 0) & (there.abs() < EXACT)).all())


def without_point_zero(texts: pd.Series) -> pd.Series:
    """Drop the `.0` that a table with gaps adds to all whole numbers.

    If one does not end so, `250.0` may be another code than `250`, and all stay as they are.
    """
    there = texts.dropna().astype("string")
    if len(there) and bool(there.str.fullmatch(_WITH_POINT_ZERO).all()):
        return texts.map(lambda text: text.removesuffix(".0"), na_action="ignore")
    return texts
