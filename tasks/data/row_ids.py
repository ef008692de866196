"""Ids of rows that stay the same on every later data set, and the test rows they fix.

An id is a hash of a row's group, key or patient, or else of its content and time as the schema
reads them. The order of rows, the format of the file, the type of numbers and the other rows do
not matter. A row whose hash lies in the first `test_size` of all hashes is a test row, so a
training row never becomes one.

Rows that were copied, such as by a join or by oversampling, let a model learn the answers to its
test rows. Rows of a small discrete table repeat honestly: other rows then differ from a repeated
row in one column only, and have each of its values. No other row is so near to a copied row.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.notation import as_number
from prefect_tune.tasks.data.row_reader import category_texts

Hashes = NDArray[np.uint64]
"""Hashes, shape (n,)."""

_NOT_PLAIN = re.compile(r"^(-?\d+)\.0+$|^(\d{4}-\d{2}-\d{2})[T ]00:00(?::00(?:\.0+)?)?$")
"""Whole numbers with decimals, and dates at midnight; ids are of what they mean."""
_ADDED, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Constants of the generator SplitMix64 (Steele, Lea and Flood 2014)."""
_NO_VALUE = 0x7FF8000000000000
"""Bits of a missing number; a missing category has the same."""
SINGLE, SIX_DIGITS = 0, 6
"""Precisions of fractional numbers: 32-bit floats, and significant digits."""
_POWERS = np.append(10.0 ** np.arange(309), np.append(np.zeros(30), 10.0 ** np.arange(-308, 0)))
"""Powers of 10 by their exponent, also a negative one."""
_SHARE = 0.1
"""Least share of rows that both data sets must have for a column to identify them, relative to the
share without the column."""
_UNIQUE_SHARE, _FOUND_SHARE = 0.95, 0.2
"""Least shares of different rows that the remaining columns tell apart, and that both data sets
have. By chance, rows that are so rarely equal inside a data set are not equal in two."""
_SAMPLED = 20_000
"""Rows that are compared; both data sets take those with the same values of one column."""
_ATTEMPTS = 3
"""Columns tried as the first column of the ids, because the first one is never found to differ."""


@dataclass(frozen=True, slots=True)
class FixedTestRows:
    """The rule that test rows are fixed by a hash.

    Attributes:
        columns: Feature columns whose content is the id of a row; empty for all columns. Groups and
            patients have precedence.
    """

    columns: tuple[str, ...] = ()


def identity_columns(dataset: Dataset) -> tuple[str, ...]:
    """Return the columns by which later data find their rows; empty for groups, keys, patients."""
    is_named = dataset.groups is not None or dataset.ids is not None
    return () if is_named else common_columns(dataset, dataset)


def common_columns(one: Dataset, other: Dataset) -> tuple[str, ...]:
    """Return the features of two tables that make up the content of a row; empty for events.

    The days of a date stand for its other parts, which depend on whether any date has a clock.
    """
    columns = [] if one.row_reader is None else one.row_reader.columns
    names = (n for c in columns for n in (c.features[:1] if c.kind == "date" else c.features))
    return tuple(name for name in names if name in set(_frame(other).columns))


def row_ids(dataset: Dataset, columns: Sequence[str] | None = None) -> Hashes:
    """Return the id of each row, shape (n,); raises `BadInput` if a column is missing.

    A data set with groups must be read with `Source.keeps_ids`. `columns` are the features of the
    id of other rows, by default all.
    """
    if isinstance(dataset.X, EventRows):
        return value_ids(dataset.X.rows["subject_id"])
    if dataset.ids is not None:
        return dataset.ids
    if dataset.groups is not None:
        raise ValueError(f"data set {dataset.name} was read without ids of its groups")
    return content_ids(dataset, columns or identity_columns(dataset))


def content_ids(dataset: Dataset, columns: Iterable[str], precision: int | None = SINGLE) -> Hashes:
    """Return a hash of the time and of some features of each row of a table, shape (n,).

    `precision` is `SINGLE`, `SIX_DIGITS` or None, for numbers as they are. Raises `BadInput` if a
    column is missing.
    """
    ids = np.zeros(len(dataset), dtype=np.uint64)
    if dataset.times is not None:
        ids = _mixed(np.ascontiguousarray(dataset.times).view(np.uint64))
    for name in columns:
        ids += column_hashes(dataset, name, precision)
    return _mixed(ids)


def column_hashes(dataset: Dataset, name: str, precision: int | None = SINGLE) -> Hashes:
    """Return a hash of a feature of each row, shape (n,), as part of `content_ids`."""
    if name not in (X := _frame(dataset)):
        raise BadInput(
            f"{dataset.name} has no feature {name!r}, by which the series recognizes its rows",
            remedy="bring the column back with its former kind (numbers, categories or free "
            "text), or start another --series",
        )
    if name.endswith(".days"):  # 32 bits would make one time of all times of a minute
        precision = None
    return _mixed(value_bits(X[name], precision) ^ np.uint64(_hash(name)))


def _frame(dataset: Dataset) -> pd.DataFrame:
    return dataset.X if isinstance(dataset.X, pd.DataFrame) else pd.DataFrame()


def settled_columns(before: Dataset, now: Dataset, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that identify rows, without those that differ in nearly all known rows.

    Such a column is the date of a snapshot. Columns are added to an id one by one, those with most
    values first. If the share of rows that both data sets have then nearly vanishes, the last
    column differs. If the others do not identify rows either, all columns stay.
    """
    if not columns:
        return ()
    all_ids = content_ids(now, columns)
    is_fresh = ~np.isin(all_ids, content_ids(before, columns))
    if 2 * is_fresh.sum() < min(len(now), len(before)):
        return tuple(columns)
    n_distinct = _frame(before)[list(columns)].iloc[:_SAMPLED].nunique()
    order = sorted(columns, key=lambda name: -n_distinct[name])
    n_parts = np.uint64(max(1, len(now) // _SAMPLED))
    for start in range(min(_ATTEMPTS, len(order))):
        first = order[start]
        is_old = column_hashes(before, first) % n_parts == 0
        is_new = is_fresh & (column_hashes(now, first) % n_parts == 0)
        kept, share, ids = list[str](), 1.0, (np.zeros(1, np.uint64), np.zeros(1, np.uint64))
        for name in order[start:] + order[:start]:
            old = ids[0] + column_hashes(before, name)[is_old]
            new = ids[1] + column_hashes(now, name)[is_new]
            n_values = [len(np.unique(one)) for one in (old, new)]
            found = len(np.intersect1d(old, new)) / max(1, min(n_values))
            if found >= _SHARE * share:
                kept, share, ids = [*kept, name], found, (old, new)
        n_ids = len(np.unique(all_ids[is_new]))
        is_identity = len(np.unique(ids[1])) >= _UNIQUE_SHARE * n_ids and share >= _FOUND_SHARE
        if is_identity and 2 * len(kept) >= len(columns):
            return tuple(name for name in columns if name in kept)
    return tuple(columns)


def fixed_test_rows(
    dataset: Dataset, columns: Sequence[str], test_size: float
) -> NDArray[np.bool_]:
    """Return whether the hash of each row makes it a test row, shape (n,)."""
    return row_ids(dataset, columns) < np.uint64(int(test_size * 2**64))


def value_ids(column: pd.Series) -> Hashes:
    """Return the hash of each group or patient, shape (n,); 7 and 7.0 are equal, 07 is not."""
    number, values = pd.factorize(category_texts(column))
    plain = [_NOT_PLAIN.sub(lambda found: found[1] or found[2], str(value)) for value in values]
    return np.array([_hash(text) for text in plain], dtype=np.uint64)[number]


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def value_bits(column: pd.Series, precision: int | None = SINGLE) -> Hashes:
    """Return equal bits for equal values, shape (n,): numbers as floats, other texts by hash."""
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return _number_bits(column.to_numpy(dtype=np.float64), precision)
    texts = [str(category) for category in column.cat.categories]
    numbers = np.array([as_number(text) for text in texts], dtype=np.float64)
    of_texts = np.array([_hash(text) for text in texts], dtype=np.uint64)
    bits = np.where(np.isfinite(numbers), _number_bits(numbers, precision), of_texts)
    return np.append(bits, np.uint64(_NO_VALUE)).astype(np.uint64)[column.cat.codes.to_numpy()]


def _number_bits(numbers: NDArray[np.float64], precision: int | None) -> Hashes:
    if precision is not None:
        is_fraction = np.isfinite(numbers) & (numbers != np.trunc(numbers))
        numbers = numbers.copy()
        numbers[is_fraction] = _rounded(numbers[is_fraction], precision)
    bits = (numbers + 0.0).view(np.uint64)  # the sum turns -0.0 into 0.0
    bits[np.isnan(numbers)] = _NO_VALUE
    return bits


def _rounded(numbers: NDArray[np.float64], precision: int) -> NDArray[np.float64]:
    with np.errstate(all="ignore"):
        if precision == SINGLE:
            rounded = numbers.astype(np.float32).astype(np.float64)
        else:
            exponent = np.floor(np.log10(np.abs(numbers))).astype(np.intp)
            scale = _POWERS[precision - 1 - exponent]
            rounded = np.round(numbers * scale) / scale
    return np.where(np.isfinite(rounded) & (rounded != 0), rounded, numbers)


def _mixed(bits: Hashes) -> Hashes:
    bits = bits + np.uint64(_ADDED)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(_FIRST)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(_SECOND)
    return bits ^ (bits >> np.uint64(31))


_REPEATED_SHARE = 0.05
"""Least share of rows that are copied for equal rows to share a side of a split."""
_DISTINCT_SHARE = 0.05
"""Least share of distinct rows; tables with a smaller share have few possible rows."""
_DEVIATIONS = 3
"""Standard deviations by which the number of equal test rows must exceed the expected number."""


def copied_rows(dataset: Dataset) -> NDArray[np.intp] | None:
    """Return the number of the distinct row that each row is, shape (n,).

    None unless many rows were copied. Given test rows are never the same as training rows.
    """
    if not isinstance(dataset.X, pd.DataFrame):
        return None
    ids = _ids(dataset, None)
    if dataset.is_test is not None:
        ids = ids * np.uint64(2) + dataset.is_test.astype(np.uint64)
    _, first, number, counts = np.unique(
        ids, return_index=True, return_inverse=True, return_counts=True
    )
    is_repeated = counts > 1
    is_rare = counts[is_repeated].sum() < _REPEATED_SHARE * len(ids)
    if is_rare or len(first) < _DISTINCT_SHARE * len(ids):
        return None
    hashes = [column_hashes(dataset, str(name), None)[first] for name in dataset.X]
    hashes.append(value_bits(pd.Series(dataset.y), None)[first])
    row = np.sum(hashes, axis=0, dtype=np.uint64)
    is_near = np.any([_are_repeated(row - one) for one in hashes], axis=0)
    has_own_value = ~np.all([_are_repeated(one) for one in hashes], axis=0)
    n_honest = (is_near & ~has_own_value)[is_repeated].sum()
    return None if 2 * n_honest > is_repeated.sum() else number


def equal_test_rows(
    dataset: Dataset, is_test: NDArray[np.bool_], is_training: NDArray[np.bool_]
) -> NDArray[np.bool_] | None:
    """Return whether each row is a test row that equals a training row to six digits, shape (n,).

    None for no more rows than the repeats inside the training rows explain.
    """
    if not isinstance(dataset.X, pd.DataFrame) or not is_test.any():
        return None
    is_equal = np.zeros(len(dataset), dtype=bool)
    for precision in (SINGLE, SIX_DIGITS):  # float32 and float64 may round to other digits
        ids = _ids(dataset, precision)
        is_equal |= is_test & np.isin(ids, ids[is_training])
    if not (n_equal := int(is_equal.sum())):
        return None
    n_repeated = _are_repeated(ids[is_training]).sum() + 1
    expected = is_test.sum() * n_repeated / is_training.sum()
    is_explained = n_equal <= expected + _DEVIATIONS * np.sqrt(expected)
    return None if is_explained and copied_rows(dataset) is None else is_equal


def _ids(dataset: Dataset, precision: int | None) -> Hashes:
    names = map(str, dataset.X.columns) if isinstance(dataset.X, pd.DataFrame) else ()
    return content_ids(dataset, names, precision) ^ value_bits(pd.Series(dataset.y), precision)


def _are_repeated(ids: Hashes) -> NDArray[np.bool_]:
    """Return whether each id occurs more than once, shape (n,)."""
    return pd.Series(ids).duplicated(keep=False).to_numpy()
