"""Ids of rows that stay the same on every later data set, and the test rows they fix.

An id is a hash of a row's group or patient, or else of its content and time. The order of rows,
the format of the file, the type of numbers and the other rows do not matter. A row whose hash lies
in the first `test_size` of all hashes is a test row, so a training row never becomes one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.columns import category_texts
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.row_reader import read_number

Hashes = NDArray[np.uint64]
"""Hashes, shape (n,)."""

_POINT_ZERO = re.compile(r"(-?\d+)\.0+")
_AT_MIDNIGHT = re.compile(r"(\d{4}-\d{2}-\d{2})[T ]00:00(?::00(?:\.0+)?)?")
_ADDED, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Constants of the generator SplitMix64 (Steele, Lea and Flood 2014)."""
_NO_VALUE = 0x7FF8000000000000
"""Bits of a missing number; a missing category has the same."""


@dataclass(frozen=True, slots=True)
class FixedTestRows:
    """The rule that test rows are fixed by a hash.

    Attributes:
        columns: Feature columns whose content is the id of a row; empty for all columns. Groups and
            patients have precedence.
    """

    columns: tuple[str, ...] = ()


def identity_columns(dataset: Dataset) -> tuple[str, ...]:
    """Return the columns by which later data find their rows; empty for groups and patients."""
    if dataset.groups is not None or not isinstance(dataset.X, pd.DataFrame):
        return ()
    return tuple(map(str, dataset.X.columns))


def row_ids(dataset: Dataset, columns: Sequence[str] | None = None) -> Hashes:
    """Return the id of each row, shape (n,); raises `BadInput` if a column is missing.

    A data set with groups must be read with `Source.keeps_ids`. `columns` are the features of the
    id of other rows, by default all.
    """
    if isinstance(dataset.X, EventRows):
        return value_ids(dataset.X.rows["subject_id"])
    if dataset.groups is not None:
        if dataset.ids is None:
            raise ValueError(f"data set {dataset.name} was read without ids of its groups")
        return dataset.ids
    names = sorted(columns or identity_columns(dataset))
    ids = np.zeros(len(dataset), dtype=np.uint64)
    if dataset.times is not None:
        ids = _mixed(np.ascontiguousarray(dataset.times).view(np.uint64))
    for name in names:
        if name not in dataset.X:
            raise BadInput(
                f"{dataset.name} has no feature {name!r}, by which the series recognizes its rows",
                remedy="bring the column back with its former kind (numbers, categories or free "
                "text), or start another --series",
            )
        ids = _mixed(ids ^ _mixed(_bits(dataset.X[name]) ^ np.uint64(_hash(name))))
    return ids


def fixed_test_rows(
    dataset: Dataset, columns: Sequence[str], test_size: float
) -> NDArray[np.bool_]:
    """Return whether the hash of each row makes it a test row, shape (n,)."""
    return row_ids(dataset, columns) < np.uint64(int(test_size * 2**64))


def value_ids(column: pd.Series) -> Hashes:
    """Return the hash of each group or patient, shape (n,); 7 and 7.0 are equal, 07 is not."""
    number, values = pd.factorize(category_texts(column))
    return np.array([_hash(_plain(str(value))) for value in values], dtype=np.uint64)[number]


def _plain(text: str) -> str:
    if found := _POINT_ZERO.fullmatch(text) or _AT_MIDNIGHT.fullmatch(text):
        return found[1]
    return text


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _bits(column: pd.Series) -> Hashes:
    """Return equal bits for equal values, shape (n,): numbers as floats, other texts by hash."""
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return _number_bits(column.to_numpy(dtype=np.float64))
    texts = [str(category) for category in column.cat.categories]
    numbers = np.array([read_number(text) for text in texts], dtype=np.float64)
    of_texts = np.array([_hash(text) for text in texts], dtype=np.uint64)
    bits = np.where(np.isfinite(numbers), _number_bits(numbers), of_texts)
    return np.append(bits, np.uint64(_NO_VALUE)).astype(np.uint64)[column.cat.codes.to_numpy()]


def _number_bits(numbers: NDArray[np.float64]) -> Hashes:
    bits = (numbers + 0.0).view(np.uint64)  # the sum turns -0.0 into 0.0
    bits[np.isnan(numbers)] = _NO_VALUE
    return bits


def _mixed(bits: Hashes) -> Hashes:
    bits = bits + np.uint64(_ADDED)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(_FIRST)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(_SECOND)
    return bits ^ (bits >> np.uint64(31))
