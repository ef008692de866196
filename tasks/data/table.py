"""The target of a data set, and the features of a table: numbers or categories with gaps."""

import logging
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.bad_input import BadInput, need_column
from prefect_tune.tasks.data.ids import EXACT, are_whole, without_point_zero

_CLASSES = 50
_CLASSES_WITH_DECIMALS = 10
"""A target of more different numbers than this is no class."""


def target_of(
    target: pd.Series, where: str, predicts: str | None = None
) -> tuple[NDArray[Any], tuple[str | int | float | bool, ...], list[str]]:
    """Encode the target: classes or numbers.

    Args:
        target: The values.
        where: What to call the table in a message.
        predicts: `classes` or `numbers`. Found out when left out: more different numbers than there
            are likely to be classes are predicted as numbers.

    Returns:
        Positions in the sorted tuple of classes, and that tuple; or the numbers, and nothing. And
        notes for the user.

    Raises:
        BadInput: If a row has none or an infinite number, or all have the same.
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
    most = _CLASSES if (target % 1 == 0).all() else _CLASSES_WITH_DECIMALS
    return target.nunique() > most


def need_targets(target: pd.Series, where: str) -> None:
    """Check that every row of a file has a target.

    Raises:
        BadInput: If one has none.
    """
    missing = int(target.isna().sum())
    if missing:
        raise BadInput(
            f"{missing} of {len(target)} rows of {where} have no {target.name!r}; "
            "leave them out with --drop-missing-target"
        )


def _check_target(target: pd.Series, where: str) -> None:
    """Raise unless every row has a target, and not all the same."""
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
    """Return sorted labels as estimators learn them: whole numbers, truth values or texts."""
    if isinstance(target.dtype, pd.CategoricalDtype):
        target = target.astype(target.cat.categories.dtype)
    if pd.api.types.is_bool_dtype(target):
        return np.asarray(target, dtype=np.bool_)
    if pd.api.types.is_numeric_dtype(target):
        is_exact = pd.api.types.is_integer_dtype(target) or bool((target.abs() < EXACT).all())
        if is_exact and ((target % 1 == 0) & (target <= np.iinfo(np.int64).max)).all():
            return np.asarray(target, dtype=np.int64)
    return np.array([str(label) for label in target])


_LOGGER = logging.getLogger(__name__)

TEXT_VALUES = 100
"""A column of texts with more values than this, most of them different, is no category."""
TEXT_SHARE = 0.5
_FEW_ROWS = 20
"""A column of whole numbers that differ in more rows than this may only name the rows."""


def features_of(
    frame: pd.DataFrame, drop: Sequence[str], categorical: Sequence[str], where: str
) -> tuple[pd.DataFrame, list[str]]:
    """Bring features to canonical form: float64 columns and categories, gaps kept.

    Args:
        frame: The table without its target.
        drop: Columns to leave out.
        categorical: Columns to take as categories whatever they hold.
        where: What to call the table in a message.

    Returns:
        The features, and notes for the user.

    Raises:
        BadInput: If a column is named twice or not there, holds texts that are no categories or
            infinite numbers, or if nothing is left.
    """
    doubled = frame.columns[frame.columns.duplicated()]
    if len(doubled):
        raise BadInput(f"{where} has two columns called {doubled[0]!r}; rename one")
    for named in (*drop, *categorical):
        need_column(named, frame.columns, where)
    frame, notes = _without_empty(frame.drop(columns=list(drop)), where)
    columns: dict[str, pd.Series] = {}
    texts: list[str] = []
    for name in map(str, frame):
        column = frame[name]
        if pd.api.types.is_numeric_dtype(column) and name not in categorical:
            if _is_identifier(column):
                notes.append(
                    f"column {name} holds a different whole number in each row; if it only "
                    f"identifies the row, drop it with --drop {name}"
                )
            columns[name] = _numbers(column, name, where)
        else:
            _refuse_lists(column, name, where)
            columns[name] = category_texts(column).reset_index(drop=True)
            if name not in categorical and _is_text(column):
                texts.append(name)
    if texts:
        raise BadInput(
            f"{where} has text or identifier columns, which cannot be features: "
            f"{', '.join(texts)}. Drop them with --drop {texts[0]}, or keep them with "
            f"--categorical {texts[0]}"
        )
    return canonical(pd.DataFrame(columns)), notes


def _without_empty(frame: pd.DataFrame, where: str) -> tuple[pd.DataFrame, list[str]]:
    """Leave out columns without any value, and say so."""
    empty = [c for c in frame.columns if frame[c].isna().all()]
    frame = frame.drop(columns=empty)
    if frame.shape[1] == 0:
        raise BadInput(f"{where} has no column left to learn from")
    frame.columns = frame.columns.astype(str)
    return frame, [f"column {name} has no values and is left out" for name in empty]


def _numbers(column: pd.Series, name: str, where: str) -> pd.Series:
    numbers = pd.Series(column.to_numpy(dtype=np.float64, na_value=np.nan))
    n_infinite = int(np.isinf(numbers).sum())
    if n_infinite:
        raise BadInput(
            f"column {name!r} of {where} has {n_infinite} infinite numbers; leave the cells empty, "
            "or --drop the column"
        )
    return numbers


def like_training(
    frame: pd.DataFrame, training: pd.DataFrame, where: str = "the data to predict"
) -> pd.DataFrame:
    """Return new rows with the columns of the training data, in their order and of their kinds.

    Raises:
        BadInput: If a column is missing, or one of numbers holds something else.
    """
    columns: dict[str, pd.Series] = {}
    for name in training:
        need_column(str(name), frame.columns, where)
        column = frame[name]
        if isinstance(training[name].dtype, pd.CategoricalDtype):
            known = set(training[name].cat.categories)
            columns[str(name)] = _as_known(category_texts(column), known)
            if column.notna().any() and not known & set(columns[str(name)].dropna()):
                _LOGGER.warning(f"no value of column {name} was there in training")
            continue
        parsed = pd.to_numeric(column, errors="coerce")
        numbers = pd.Series(parsed.to_numpy(dtype=np.float64, na_value=np.nan))
        bad = column[~np.isfinite(numbers.to_numpy()) & column.notna().to_numpy()]
        if len(bad):
            raise BadInput(
                f"column {name!r} held numbers in training and holds {bad.iloc[0]!r} in {where}"
            )
        columns[str(name)] = numbers
    return canonical(pd.DataFrame(columns))


def _as_known(texts: pd.Series, known: Collection[str]) -> pd.Series:
    """Return texts as the known ones are written; what is not known stays."""
    for other in (  # a file with a gap writes 1 as 1.0
        texts.map(lambda text: text.removesuffix(".0"), na_action="ignore"),
        texts.map(lambda text: f"{text}.0", na_action="ignore"),
    ):
        texts = texts.where(texts.isin(known) | ~other.isin(known), other)
    return texts


def _refuse_lists(column: pd.Series, name: str, where: str) -> None:
    first = column.dropna().iloc[0]
    if isinstance(first, list | tuple | dict | set | np.ndarray):
        raise BadInput(
            f"column {name!r} of {where} holds values of type {type(first).__name__}, which cannot "
            f"be features; drop it with --drop {name}"
        )


def _is_text(column: pd.Series) -> bool:
    values = column.dropna()
    share = values.nunique() / len(values)
    return len(values) > TEXT_VALUES and share > TEXT_SHARE


def _is_identifier(column: pd.Series) -> bool:
    """Return whether a column holds a different whole number in every row."""
    is_whole = pd.api.types.is_integer_dtype(column)
    return bool(is_whole and len(column) > _FEW_ROWS and column.nunique() == len(column))


def category_texts(column: pd.Series) -> pd.Series:
    """Return category values as texts, gaps kept; if all are whole, 1.0 is the category 1."""
    if pd.api.types.is_datetime64_any_dtype(column):
        return column.astype(str).astype(object).where(column.notna(), None)
    if pd.api.types.is_float_dtype(column) and are_whole(column):
        column = column.astype("Int64")
    values = column.astype(object)
    texts = values.where(values.notna(), None).map(str, na_action="ignore")
    return without_point_zero(texts)
