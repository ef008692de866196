"""Groups of rows that stay in one fold, and on one side of the test."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.table import category_texts

__all__ = ["check_apart", "groups_of"]


def groups_of(column: pd.Series, where: str) -> NDArray[np.int64]:
    """Number the groups of rows with equal values, shape (n,).

    Raises:
        BadInput: If a row has none.
    """
    missing = int(column.isna().sum())
    if missing:
        raise BadInput(f"{missing} rows of {where} have no {column.name!r} to be grouped by")
    groups, _ = pd.factorize(category_texts(column))
    return groups.astype(np.int64)


def check_apart(groups: NDArray[np.int64], is_test: NDArray[np.bool_], what: str) -> None:
    """Raise if a group has rows to learn from and rows of the test.

    Args:
        groups: Number of each row's group, shape (n,).
        is_test: Whether it is a row of the test, shape (n,).
        what: What to call groups in the message.

    Raises:
        BadInput: If a group has rows of both.
    """
    both = np.intersect1d(groups[is_test], groups[~is_test])
    if len(both):
        raise BadInput(f"{len(both)} {what} have both training rows and test rows")
