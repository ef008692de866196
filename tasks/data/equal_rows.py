"""Rows of a table that equal each other in all features and the target.

Rows that were copied, such as by a join or by oversampling, let a model learn the answers to its
test rows. Rows of a small discrete table repeat honestly: other rows then differ from a repeated
row in one column only, and have each of its values. No other row is so near to a copied row.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.row_ids import (
    SINGLE,
    SIX_DIGITS,
    Hashes,
    column_hashes,
    content_ids,
    value_bits,
)

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
    hashes.append(_target_bits(dataset, None)[first])
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
    return content_ids(dataset, names, precision) ^ _target_bits(dataset, precision)


def _target_bits(dataset: Dataset, precision: int | None) -> Hashes:
    return value_bits(pd.Series(dataset.y), precision)


def _are_repeated(ids: Hashes) -> NDArray[np.bool_]:
    """Return whether each id occurs more than once, shape (n,)."""
    _, number, counts = np.unique(ids, return_inverse=True, return_counts=True)
    return counts[number] > 1
