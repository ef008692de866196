"""Ids of patients as 64-bit whole numbers or texts, without loss of digits."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from prefect_tune.tasks.bad_input import BadInput

EXACT = 2**53
"""Beyond this number, floats cannot represent every whole number."""
_WITH_POINT_ZERO = r"-?(?:0|[1-9]\d{0,14})\.0"


def are_whole(numbers: pd.Series) -> bool:
    """Return whether all floats, except gaps, are exact whole numbers."""
    there = numbers.dropna()
    return bool(((there % 1 == 0) & (there.abs() < EXACT)).all())


def without_point_zero(texts: pd.Series) -> pd.Series:
    """Drop the `.0` that a table with gaps adds to all whole numbers.

    If any code lacks this ending, all codes stay: `250.0` and `250` may be different codes.
    """
    there = texts.dropna().astype("string")
    if len(there) and bool(there.str.fullmatch(_WITH_POINT_ZERO).all()):
        return texts.map(lambda text: text.removesuffix(".0"), na_action="ignore")
    return texts


_WHOLE = r"0|-?[1-9]\d{0,19}"
"""Pattern of texts that stand for whole numbers; `007` and `+7` remain texts, unlike `7`."""
_TYPES = (np.int64, np.uint64)


def as_ids(column: pd.Series, where: str) -> pd.Series:
    """Return ids without gaps: int64 or uint64 if all are whole numbers or such texts, else texts.

    An id is therefore the same in a CSV file, which has no types, and in a Parquet file.

    Raises:
        BadInput: If ids are floats that are not whole, or too large to be exact.
    """
    if pd.api.types.is_float_dtype(column):
        numbers = column.to_numpy(dtype=np.float64)
        bad = numbers[(numbers % 1 != 0) | (np.abs(numbers) > EXACT)]
        if len(bad):
            raise BadInput(
                f"{where} has patient ids as floats, which loses digits, for "
                f"instance {bad[0]!r}; write whole numbers or texts"
            )
        return pd.Series(numbers.astype(np.int64), index=column.index)
    if pd.api.types.is_unsigned_integer_dtype(column) and len(column):
        return column.astype(np.int64 if column.max() <= np.iinfo(np.int64).max else np.uint64)
    if pd.api.types.is_integer_dtype(column):
        return column.astype(np.int64)
    number, uniques = pd.factorize(column.astype(object).map(str))
    texts = without_point_zero(pd.Series(uniques, dtype=object))
    known = _as_numbers(texts)
    return pd.Series((texts if known is None else known).to_numpy()[number], index=column.index)


def _as_numbers(texts: pd.Series) -> pd.Series | None:
    if not len(texts) or not texts.astype("string").str.fullmatch(_WHOLE).all():
        return None
    numbers = [int(text) for text in texts]
    for kind in _TYPES:
        if np.iinfo(kind).min <= min(numbers) and max(numbers) <= np.iinfo(kind).max:
            return pd.Series(np.array(numbers, dtype=kind))
    return None


def joined_ids(columns: Sequence[pd.Series]) -> pd.Series:
    """Join the ids of several tables, as texts if any table has texts."""
    if len({column.dtype for column in columns}) > 1:
        columns = [column.map(str) for column in columns]
        return as_ids(pd.concat(columns, ignore_index=True), "")
    return pd.concat(columns, ignore_index=True)


def like_ids(ids: pd.Series, known: pd.Series) -> pd.Series:
    """Return ids in the type of the `known` ones (17 and "17" are one patient); other ids stay."""
    if ids.dtype == known.dtype:
        return ids
    by_text: dict[str, Any] = {str(one): one for one in known.unique()}
    texts = ids.map(str)
    if texts.isin(list(by_text)).all():
        return texts.map(by_text).astype(known.dtype)
    return pd.Series([by_text.get(text, text) for text in texts], index=ids.index, dtype=object)
