"""The target of a data set: classes or numbers."""

from collections.abc import Iterator
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.notation import NoNumbers, as_numbers, numbers_in

_CLASSES = 50
CLASSES_WITH_DECIMALS = 10
"""Most distinct numbers of a target with fractions that still counts as classes."""


def target_of(
    target: pd.Series, where: str, predicts: str | None = None, decimal: str = ""
) -> tuple[NDArray[Any], tuple[str | int | float | bool, ...], list[str]]:
    """Encode the target: classes or numbers. Texts of many different numbers are numbers.

    Args:
        target: The values.
        where: Name of the table in messages.
        predicts: `classes` or `numbers`; None takes numbers with many distinct values as numbers.
        decimal: Decimal mark in the rest of the table, if it is known.

    Returns:
        Positions in the sorted classes, and the tuple of classes; or the numbers, and an empty
        tuple. Then notes for the user.

    Raises:
        BadInput: If a target is missing or infinite, if all targets are equal, or if a text is no
            number as most others are.
    """
    need_targets(target, where)
    if not len(target):
        raise BadInput(f"{where} has no rows")
    if target.nunique() < 2:
        only = target.iloc[0].item() if isinstance(target.iloc[0], np.generic) else target.iloc[0]
        raise BadInput(
            f"target {target.name!r} of {where} is {only!r} in all rows; there is nothing to learn"
        )
    target, notes = number_texts(target, where, predicts, decimal)
    is_numeric = pd.api.types.is_numeric_dtype(target) and not pd.api.types.is_bool_dtype(target)
    if is_numeric and np.isinf(target.to_numpy(dtype=np.float64)).any():
        raise BadInput(
            f"target {target.name!r} of {where} has infinite values; remove or fix these rows"
        )
    if predicts is None and is_numeric and _are_numbers(target):
        predicts = "numbers"
        note = f"target {target.name} has {target.nunique()} different numbers"
        notes.append(f"{note}, so it is predicted as one; --metric error treats them as classes")
    if predicts != "numbers":
        codes, values = pd.factorize(target)
        classes, order = np.unique(_labels(pd.Series(values)), return_inverse=True)
        notes += _alike_classes(classes, str(target.name))
        return order[codes].astype(np.int32), tuple(label.item() for label in classes), notes
    if not is_numeric:
        raise BadInput(
            f"target {target.name!r} of {where} holds {target.iloc[0]!r}, which cannot be "
            "predicted as a number; choose a --metric and a --space for classes"
        )
    return target.to_numpy(dtype=np.float64), (), notes


def _alike_classes(classes: NDArray[Any], target: str) -> Iterator[str]:
    """Yield a note on two classes that may be one."""
    seen: dict[str, str] = {}
    for text in map(str, classes):
        other = seen.setdefault(text.strip().casefold(), text)
        if other != text:
            yield (
                f"classes {other!r} and {text!r} of target {target} differ only in capitals or "
                "blanks; write them alike if they are one class"
            )


def number_texts(
    target: pd.Series, where: str, predicts: str | None, decimal: str
) -> tuple[pd.Series, list[str]]:
    """Return a target with its texts as numbers if they are a number to predict, and a note.

    Raises:
        BadInput: If some of many different numbers are texts of another kind.
    """
    found = None if predicts == "classes" else numbers_in(target, decimal)
    if found is None or (isinstance(found, NoNumbers) and target.nunique() <= _CLASSES):
        return target, []
    holds = f"target {target.name!r} of {where} holds"
    remedy = "write all as numbers, or treat them as classes with --metric error"
    if isinstance(found, NoNumbers):
        raise BadInput(f"{holds} {found.within(target)}", remedy=remedy)
    strays = target[target.isin(found.strays)]
    numbers = as_numbers(target.drop(strays.index), found.notation)
    if predicts is None and not _are_numbers(numbers):
        return target, []
    if len(strays):
        raise BadInput(
            f"{holds} numbers and {len(strays)} other values, such as {strays.iloc[0]!r} in row "
            f"{strays.index[0] + 1}",
            remedy=f"leave these rows out with --na-values {quote(strays.iloc[0])} "
            f"--drop-missing-target, or {remedy}",
        )
    return numbers, [f"target {target.name}: {found.notation.of(target)}"]


def _are_numbers(target: pd.Series) -> bool:
    is_whole = (target.to_numpy(dtype=np.float64) % 1 == 0).all()
    most = _CLASSES if is_whole else CLASSES_WITH_DECIMALS
    return target.nunique() > most


def need_targets(target: pd.Series, where: str) -> None:
    """Raise `BadInput` unless every row of a file has a target."""
    missing = int(target.isna().sum())
    if missing:
        raise BadInput(
            f"{missing} of {len(target)} rows of {where} have no {target.name!r}, such as row "
            f"{int(target.isna().argmax()) + 1}; leave them out with --drop-missing-target"
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
