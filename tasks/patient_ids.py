"""Patients' ids: whole numbers of 64 bits or texts, exactly as they are."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from prefect_tune.tasks.bad_input import BadInput

__all__ = ["as_ids", "joined_ids", "like_ids"]

_EXACT = 2**53
"""Beyond this a float does not tell neighbouring whole numbers apart."""
_LARGEST = np.iinfo(np.int64).max


def as_ids(column: pd.Series, where: str) -> pd.Series:
    """Whole numbers as int64 or uint64, all else as texts; there are no gaps.

    Raises:
        BadInput: If they are floats that are not whole, or too large to be exact.
    """
    if pd.api.types.is_float_dtype(column):
        numbers = column.to_numpy(dtype=np.float64)
        bad = numbers[(numbers % 1 != 0) | (np.abs(numbers) > _EXACT)]
        if len(bad):
            raise BadInput(
                f"{where} has patient ids as floats, which does not keep them exactly, for "
                f"instance {bad[0]!r}; write whole numbers or texts"
            )
        return pd.Series(numbers.astype(np.int64), index=column.index)
    if pd.api.types.is_unsigned_integer_dtype(column) and (column > _LARGEST).any():
        return column.astype(np.uint64)
    if pd.api.types.is_integer_dtype(column):
        return column.astype(np.int64)
    return column.astype(object).map(str)


def joined_ids(columns: Sequence[pd.Series]) -> pd.Series:
    """The ids of several tables as one column; texts if one of them has texts."""
    if len({column.dtype for column in columns}) > 1:
        columns = [column.map(str) for column in columns]
    return pd.concat(columns, ignore_index=True)


def like_ids(ids: pd.Series, known: pd.Series) -> pd.Series:
    """Ids in the type of the known ones, so that 17 and "17" are the same patient."""
    if ids.dtype == known.dtype:
        return ids
    if not pd.api.types.is_integer_dtype(known):
        return ids.map(str)
    whole = [str(text) for text in ids]
    if not all(text.removeprefix("-").isdecimal() for text in whole):
        return ids
    numbers = [int(text) for text in whole]
    limits = np.iinfo(np.uint64 if known.dtype == np.uint64 else np.int64)
    if not all(limits.min <= number <= limits.max for number in numbers):
        return ids
    return pd.Series(np.array(numbers, dtype=limits.dtype), index=ids.index)
