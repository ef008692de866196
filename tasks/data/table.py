"""The target of a data set: classes or numbers."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.tasks.bad_input import BadInput

_CLASSES = 50
CLASSES_WITH_DECIMALS = 10
"""Most distinct numbers of a target with fractions that still counts as classes."""


def target_of(
    target: pd.Series, where: str, predicts: str | None = None
) -> tuple[NDArray[Any], tuple[str | int | float | bool, ...], list[str]]:
    """Encode the target: classes or numbers.

    Args:
        target: The values.
        where: Name of the table in messages.
        predicts: `classes` or `numbers`; None takes numbers with many distinct values as numbers.

    Returns:
        Positions in the sorted classes, and the tuple of classes; or the numbers, and an empty
        tuple. Then notes for the user.

    Raises:
        BadInput: If a target is missing or infinite, or if all targets are equal.
    """
    _check_target(target, where)
    is_numeric = pd.api.types.is_numeric_dtype(target) and not pd.api.types.is_bool_dtype(target)
    if is_numeric and np.isinf(target.to_numpy(dtype=np.float64)).any():
        raise BadInput(
            f"target {target.name!r} of {where} has infinite values; remove or fix these rows"
        )
    notes = []
    if predicts is None and is_numeric and _are_numbers(target):
        predicts = "numbers"
        note = f"target {target.name} has {target.nunique()} different numbers"
        notes = [f"{note}, so it is predicted as one; --metric error treats them as classes"]
    if predicts != "numbers":
        uniques, codes = np.unique(_labels(target), return_inverse=True)
        return codes.astype(np.int32), tuple(label.item() for label in uniques), notes
    if not is_numeric:
        raise BadInput(
            f"target {target.name!r} of {where} holds {target.iloc[0]!r}, which cannot be "
            "predicted as a number; choose a --metric and a --space for classes"
        )
    return target.to_numpy(dtype=np.float64), (), notes


def _are_numbers(target: pd.Series) -> bool:
    most = _CLASSES if (target % 1 == 0).all() else CLASSES_WITH_DECIMALS
    return target.nunique() > most


def need_targets(target: pd.Series, where: str) -> None:
    """Raise `BadInput` unless every row of a file has a target."""
    missing = int(target.isna().sum())
    if missing:
        raise BadInput(
            f"{missing} of {len(target)} rows of {where} have no {target.name!r}; "
            "leave them out with --drop-missing-target"
        )


def _check_target(target: pd.Series, where: str) -> None:
    """Raise unless every row has a target, and at least two targets differ."""
    name = target.name
    need_targets(target, where)
    if not len(target):
        raise BadInput(f"{where} has no rows")
    if target.nunique() < 2:
        constant = target.iloc[0]
        constant = constant.item() if isinstance(constant, np.generic) else constant
        raise BadInput(
            f"target {name!r} of {where} is {constant!r} in all rows; there is nothing to learn"
        )


def _labels(target: pd.Series) -> NDArray[Any]:
    """Return labels in the user's type: whole numbers, other numbers, truth values or texts."""
    if isinstance(target.dtype, pd.CategoricalDtype):
        target = target.astype(target.cat.categories.dtype)
    if pd.api.types.is_bool_dtype(target):
        return np.asarray(target, dtype=np.bool_)
    if pd.api.types.is_float_dtype(target):
        return np.asarray(target, dtype=np.float64)
    if pd.api.types.is_numeric_dtype(target) and (target <= np.iinfo(np.int64).max).all():
        return np.asarray(target, dtype=np.int64)
    return np.array([str(label) for label in target])
