"""Tables in memory: DataFrames, checked for what files cannot hold, and named by their content."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from prefect_tune.storage.key import content_digest
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.table_source import table_dataset

FRAME = "dataframe:"
"""How a source is called that was a DataFrame, before the digest of its content."""
TEST_FRAME = "the DataFrame of test rows"
"""What to call that in a message."""
_WHERE = "the DataFrame"
_TARGET = "target"
_DIGITS = 16
_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal")
"""What pandas finds in a column of objects that are numbers."""


def checked_frame(frame: pd.DataFrame, where: str = _WHERE) -> pd.DataFrame:
    """Return a DataFrame with texts as names and rows that are counted; it is not changed.

    Args:
        frame: What the user gave.
        where: What to call it in a message.

    Raises:
        BadInput: If two columns have one name, or one is sparse or holds values of several types;
            names the column.
    """
    names = [str(name) for name in frame.columns]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise BadInput(f"{where} has two columns called {doubled!r}; rename one")
    columns = {name: frame.iloc[:, position] for position, name in enumerate(names)}
    checked = {
        name: checked_column(column, f"column {name!r} of {where}")
        for name, column in columns.items()
    }
    return pd.DataFrame(checked, index=pd.RangeIndex(len(frame)))


def checked_column(column: pd.Series, what: str) -> pd.Series:
    """Return a column with counted rows; objects that are numbers or truth values as such.

    Args:
        column: What the user gave.
        what: What to call it in a message.

    Raises:
        BadInput: If it is sparse, or holds values of several types.
    """
    column = column.reset_index(drop=True)
    if isinstance(column.dtype, pd.SparseDtype):
        raise BadInput(f"{what} is sparse; make it dense with .sparse.to_dense()")
    if column.dtype != object:
        return column
    found = pd.api.types.infer_dtype(column, skipna=True)
    if found in _NUMBERS:
        return pd.to_numeric(column.where(column.notna(), None))
    if found == "boolean":
        return column.astype("boolean")
    types = sorted({type(value).__name__ for value in column.dropna()})
    if len(types) > 1 and found.startswith("mixed"):
        raise BadInput(
            f"{what} holds values of several types ({', '.join(types)}); make them all numbers or "
            "all texts, for instance with .astype(str)"
        )
    return column


def with_target(frame: pd.DataFrame, target: Any) -> tuple[pd.DataFrame, str | None]:
    """Return a checked DataFrame with its target as a column, and what that is called.

    Args:
        frame: Features, and the target where a column is named.
        target: Name of the column, or the values, one a row in the same order.

    Raises:
        BadInput: If there is not a value for each row, or the name is a column's too.
    """
    if target is None or isinstance(target, str):
        return frame, target
    if np.ndim(target) != 1:
        raise BadInput(f"a target is one value a row; got the shape {np.shape(target)}")
    values = target if isinstance(target, pd.Series) else pd.Series(target)
    name = _TARGET if values.name is None else str(values.name)
    if len(values) != len(frame):
        raise BadInput(f"the target has {len(values)} values, and {_WHERE} {len(frame)} rows")
    if name in frame:
        raise BadInput(
            f"the target is called {name!r}, and so is a column of {_WHERE}: drop the column, or "
            "rename the target"
        )
    return frame.assign(**{name: checked_column(values, f"the target {name!r}")}), name


def frame_name(frame: pd.DataFrame) -> str:
    """Return what a source is called that is this DataFrame: equal name, equal content."""
    return FRAME + content_digest("frame", _content(frame))[:_DIGITS]


def frame_dataset(source: Source, frame: pd.DataFrame, test: pd.DataFrame | None = None) -> Dataset:
    """Make a data set of a DataFrame.

    Args:
        source: How it is to be taken.
        frame: The training rows, with the target.
        test: The test rows, with the target; None if they are elsewhere or there are none.

    Raises:
        BadInput: If it cannot be used.
    """
    source = replace(source, data=_WHERE, test=source.test if test is None else TEST_FRAME)
    return table_dataset(source, FRAME.rstrip(":"), frame, test)


def _content(frame: pd.DataFrame) -> Iterator[bytes]:
    for name in frame.columns:
        column = frame[name]
        yield f"{name}\0{column.dtype}\0".encode()
        if isinstance(column.dtype, np.dtype) and column.dtype != object:
            yield np.ascontiguousarray(column.to_numpy()).tobytes()
        else:
            yield "\0".join(map(repr, column.astype(object))).encode()
