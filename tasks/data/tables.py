"""Sources with a table that has the target as a column: files, or a DataFrame in memory.

A column may define groups. Rows of a group share a fold, and are all test or training rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.extensions import ExtensionArray
from sklearn.utils.validation import column_or_1d

from prefect_tune.storage.keys import content_digest
from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.bad_input import BadInput, need_column, shown_columns
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.files import (
    INDEX,
    NOTES,
    flat_name,
    joined,
    need_scalars,
    with_flat_names,
)
from prefect_tune.tasks.data.formats.format import FORMATS, Given, recognise
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.notation import DECIMAL, decimal_mark, is_texts
from prefect_tune.tasks.data.row_ids import value_ids
from prefect_tune.tasks.data.row_reader import (
    RowReader,
    as_pandas,
    category_texts,
    plain_column,
    without_gaps,
)
from prefect_tune.tasks.data.row_times import (
    RowTimes,
    check_times_differ,
    row_times,
    time_text,
)
from prefect_tune.tasks.data.schema import NUMBERS, features_of, like_training
from prefect_tune.tasks.data.source import GAPS, Source
from prefect_tune.tasks.data.target import need_targets, target_of


def groups_of(column: pd.Series, where: str) -> NDArray[np.int64]:
    """Number the groups of rows with equal values, shape (n,); BadInput if a row has no value."""
    missing = int(column.isna().sum())
    if missing:
        raise BadInput(f"{missing} rows of {where} have no {column.name!r} to be grouped by")
    groups, _ = pd.factorize(category_texts(column))
    return groups.astype(np.int64)


def check_apart(groups: NDArray[np.int64], is_test: NDArray[np.bool_], what: str) -> None:
    """Raise `BadInput` if a group has both training and test rows; arrays have shape (n,)."""
    both = np.intersect1d(groups[is_test], groups[~is_test])
    if len(both):
        raise BadInput(f"{len(both)} {what} have both training rows and test rows")


def read_frame(
    url: str,
    texts: Sequence[str],
    chosen: str | None = None,
    gaps: tuple[str, ...] = GAPS,
    decimal: str = "",
) -> pd.DataFrame:
    """Read the table at a URL, in any format for tables.

    Args:
        url: The file or folder.
        texts: Columns to read as texts.
        chosen: Name of the format, or None to detect it; a format for events is ignored.
        gaps: Texts that count as missing.
        decimal: Decimal mark of numbers in texts; empty if the values decide it.

    Raises:
        BadInput: If the table cannot be read.
    """
    if chosen is not None and FORMATS.named(chosen).kind != "table":
        chosen = None
    location = replace(Location.at(url, gaps), decimal=decimal)
    found = recognise(Given(location), chosen, "table")
    return joined(found.frames(location, texts))


def table_dataset(
    source: Source, name: str, frame: pd.DataFrame, test_frame: pd.DataFrame | None = None
) -> Dataset:
    """Make a data set of a table; without `test_frame`, the source may name a file of test rows.

    Raises:
        BadInput: If the data cannot be used.
    """
    where, source = source.data, _with_flat_names(source)
    if source.target is None:
        raise BadInput(
            f"{where} is a table, so say which column to predict with --target COLUMN. "
            f"Its columns: {shown_columns(frame.columns)}"
        )
    if source.labels is not None:
        raise BadInput(f"{where} is a table; --labels {source.labels} goes with events")
    _check_roles(source)
    options = (source.target, source.group, source.time, *source.drop, *source.categorical)
    index = [n for n in frame.attrs.get(INDEX, ()) if n not in {*options, *source.aside}]
    no_features = [name for name in index if name in (source.key or ())]
    of_index = [name for name in index if name not in no_features]
    frame, notes = _with_target(frame.drop(columns=of_index), where, source)
    why = "the index of the DataFrame is left out, unless an option such as --group names it"
    notes += [f"{name}: {why}" for name in of_index]
    decimal = frame.attrs[DECIMAL] = source.decimal_mark or decimal_mark(frame)
    target, group = frame[source.target], _group(frame, source, where)
    times, time_notes = _times(frame, source, where)
    roles = (source.target, source.group, source.time, *no_features)
    features = frame.drop(columns=[name for name in roles if name])
    dropped = [column for column in source.drop if column not in source.aside]
    X, reader, feature_notes = features_of(
        features, dropped, source.categorical, where, source.gaps, source.aside, source.texts
    )
    notes += [*frame.attrs.get(NOTES, ()), *_gap_notes(features, source), *time_notes]
    is_test, rows = None, frame
    if source.test is not None:
        if test_frame is None:
            test_frame = read_frame(source.test, reader.texts, source.format, source.gaps, decimal)
        notes += test_frame.attrs.get(NOTES, ())
        test, more_notes = _with_target(test_frame, source.test, source)
        notes += more_notes
        parts = (X, like_training(test, reader, source.test))
        categories = dict.fromkeys(map(str, X.select_dtypes("category")), object)
        X = canonical(pd.concat([part.astype(categories) for part in parts], ignore_index=True))
        is_test = np.repeat([False, True], [len(frame), len(test)])
        rows = pd.concat([frame, test], ignore_index=True) if source.key else frame
        target = pd.concat([target, test[source.target]], ignore_index=True)
        if group is not None:
            group = pd.concat([group, _group(test, source, source.test)], ignore_index=True)
        test_times, _ = _times(test, source, source.test)
        if times is not None and test_times is not None:
            if times.dtype.kind != test_times.dtype.kind:
                raise BadInput(
                    f"column {source.time!r} has dates in one of {where} and {source.test}, and "
                    "numbers in the other",
                    option="time",
                    value=source.time,
                    remedy="write both alike",
                )
            times = np.concatenate([times, test_times])
    y, classes, more_notes = target_of(target, where, source.predicts, decimal)
    notes += more_notes
    groups, ids = None, None
    if group is not None:
        groups = groups_of(group, where)
        ids = value_ids(group) if source.keeps_ids else None
        if is_test is not None:
            check_apart(groups, is_test, f"values of {source.group}")
    if source.key:
        ids, more_notes = _key_ids(rows, source, where)
        notes += more_notes
    X, aside = X.drop(columns=list(source.aside)), X[list(source.aside)]
    if X.shape[1] == 0:
        raise BadInput(f"{where} has no column left to learn from")
    learned = tuple(column for column in reader.columns if column.name not in source.aside)
    reader = RowReader(learned, reader.missing)
    return Dataset(
        name, "table", X, y, classes, groups, is_test, aside if source.aside else None,
        None if reader.is_plain else reader, times, ids, (*notes, *feature_notes), "table",
    )  # fmt: skip


def _key_ids(
    frame: pd.DataFrame, source: Source, where: str
) -> tuple[NDArray[np.uint64], list[str]]:
    """Return the hash of the key of each row, shape (n,), and a note if rows share a key."""
    ids, names = np.zeros(len(frame), dtype=np.uint64), list(source.key or ())
    for name in names:
        need_column(name, frame.columns, where)
        column = without_gaps(frame[name], source.gaps)
        if column.isna().any():
            row = int(column.isna().argmax()) + 1
            raise BadInput(f"row {row} of {where} has no {name!r}, which is part of its --key")
        ids = ids * np.uint64(31) + value_ids(column)
    shared = pd.Series(ids).duplicated(keep=False)
    if not shared.any():
        return ids, []
    rows = np.flatnonzero(ids == ids[shared.argmax()])
    value = ", ".join(f"{name} {frame[name].iloc[rows[0]]}" for name in names)
    shown = " and ".join(str(row + 1) for row in rows[:2])
    return ids, [
        f"{shared.sum():,} rows share a key and count as one row, such as {value} in rows {shown}"
    ]


def _times(frame: pd.DataFrame, source: Source, where: str) -> tuple[RowTimes | None, list[str]]:
    """Return the times of the rows of a table and a note on them; None without `--time`."""
    if source.time is None:
        return None, []
    need_column(source.time, frame.columns, where)
    times, how = row_times(frame[source.time], where, source.gaps)
    if where == source.test:
        return times, []
    check_times_differ(times, source.time, where)
    first, last = time_text(times.min()), time_text(times.max())
    return times, [f"times in column {source.time}: {first} to {last}, read as {how}"]


def _gap_notes(frame: pd.DataFrame, source: Source) -> list[str]:
    """Return a note on texts in a DataFrame that count as missing without the user's request."""
    if source.na_values is not None or source.data != _WHERE:
        return []
    found = dict[str, set[str]]()
    for name, column in frame.items():
        texts = {cell for cell in column if isinstance(cell, str)} if is_texts(column) else set()
        if gaps := texts.intersection(source.gaps):
            found[str(name)] = gaps
    if not found:
        return []
    named = ", ".join(sorted({repr(text) for values in found.values() for text in values}))
    columns = shown_columns(found)
    return [f"{named} in column {columns} counts as missing; --na-values says what does"]


def _with_flat_names(source: Source) -> Source:
    """Return a source with the joined names of columns that have names of two levels."""
    named = ("target", "group", "key", "time", "drop", "categorical", "aside")
    given = {option: getattr(source, option) for option in named}
    changed: dict[str, Any] = {
        option: flat_name(value) if isinstance(value, str) else tuple(map(flat_name, value))
        for option, value in given.items()
        if value
    }
    return replace(source, **changed)


def _with_target(frame: pd.DataFrame, where: str, source: Source) -> tuple[pd.DataFrame, list[str]]:
    """Drop rows without a target if the user requests it; otherwise raise if any exist."""
    target = str(source.target)
    need_column(target, frame.columns, where)
    need_scalars(frame[target], where)
    if where in {_WHERE, TEST_FRAME}:  # files have been read by the same rules
        values = without_gaps(frame[target], source.gaps)
        frame = frame.assign(**{target: checked_column(values, f"the target {target!r}")})
    if not len(frame):
        raise BadInput(f"{where} has no rows")
    if not source.drop_missing_target:
        need_targets(frame[target], where)
    if not (n_missing := int(frame[target].isna().sum())):
        return frame, []
    kept = frame.dropna(subset=[target]).reset_index(drop=True)
    return kept, [f"{n_missing} rows without {target} are left out"]


def _check_roles(source: Source) -> None:
    if source.key and source.group is not None:
        raise BadInput(
            f"--key {','.join(source.key)} with --group {source.group}: rows of known groups are "
            "never fresh, so use only one of them"
        )
    used: dict[str, str] = {}
    for option in ("target", "group", "time", "drop", "categorical"):
        named = getattr(source, option) or ()
        for column in [named] if isinstance(named, str) else named:
            if used.setdefault(column, option) != option:
                raise BadInput(
                    f"column {column!r} is named by --{used[column]} and by --{option}; name it "
                    "once"
                )


def _group(frame: pd.DataFrame, source: Source, where: str) -> pd.Series | None:
    if source.group is None:
        return None
    need_column(source.group, frame.columns, where)
    return without_gaps(frame[source.group], source.gaps)


FRAME = "dataframe:"
"""Prefix of the names of sources that are DataFrames, before the digest of their content."""
TEST_FRAME = "the DataFrame of test rows"
"""Name of the DataFrame of test rows in messages."""
_WHERE = "the DataFrame"
_TARGET = "target"
_DIGITS = 16


def checked_frame(frame: pd.DataFrame, where: str = _WHERE) -> pd.DataFrame:
    """Return a copy of a DataFrame with texts as column names and rows numbered from 0.

    Levels of its index that have a name of their own become columns, which `attrs` name.

    Raises:
        BadInput: If two columns have the same name or one is sparse; the message names the column.
    """
    given = frame.copy(deep=False)
    given.attrs = {INDEX: [*frame.attrs.get(INDEX, ())]}
    for name, kind in zip(frame.columns, frame.dtypes, strict=True):
        if isinstance(kind, pd.SparseDtype):
            raise BadInput(
                f"column {str(name)!r} of {where} is sparse; make it dense with .sparse.to_dense()"
            )
    given = with_flat_names(given, where)
    for position, level in enumerate(frame.index.names):
        if level is not None and flat_name(level) not in given:
            given.attrs[INDEX].append(flat_name(level))
            given[flat_name(level)] = frame.index.get_level_values(position)
    given = given.reset_index(drop=True)
    for label, column in given.items():
        if (plain := plain_column(column)) is not column:
            given[label] = plain
    return given


def checked_column(column: pd.Series, what: str) -> pd.Series:
    """Return a target or groups with numbered rows; objects become numbers or truth values.

    Raises:
        BadInput: If the values have several types.
    """
    column = plain_column(column.reset_index(drop=True))
    if column.dtype != object:
        return column
    found = pd.api.types.infer_dtype(column, skipna=True)
    if found == "boolean":
        return column.astype("boolean")
    if found in NUMBERS:
        return pd.to_numeric(column.where(column.notna(), None))
    types = sorted({type(value).__name__ for value in column.dropna()})
    if len(types) > 1 and found.startswith("mixed"):
        raise BadInput(
            f"{what} holds values of several types ({', '.join(types)}); make them all numbers or "
            "all texts, for instance with .astype(str)"
        )
    return column


def as_column(values: Any) -> pd.Series:
    """Return values of shape (n,), or (n, 1) with scikit-learn's warning, of any library."""
    values = as_pandas(values)
    is_column = isinstance(values, ExtensionArray | pd.Series)
    if is_column or (isinstance(values, list) and np.ndim(values) == 1):
        return pd.Series(values)
    names = list(getattr(values, "columns", [None]))
    return pd.Series(column_or_1d(values, warn=True), name=names[0])


def with_target(frame: pd.DataFrame, target: Any) -> tuple[pd.DataFrame, str | None]:
    """Return a checked DataFrame with its target as a column, and the column's name.

    Args:
        frame: Features, and the target if a column is named.
        target: Name of the column, or the values in row order, perhaps as one column (with a
            warning). Values with the name of a column get another name.

    Raises:
        BadInput: If the number of values differs from the number of rows.
    """
    if isinstance(target, tuple) and flat_name(target) in frame:
        target = flat_name(target)
    if target is None or isinstance(target, str):
        return frame, target
    if np.shape(target := as_pandas(target))[1:] not in {(), (1,)}:
        raise BadInput(f"a target is one value a row; got the shape {np.shape(target)}")
    values = as_column(target)
    name = unused_name(_TARGET if values.name is None else str(values.name), frame)
    if len(values) != len(frame):
        raise BadInput(f"the target has {len(values)} values, and {_WHERE} {len(frame)} rows")
    return frame.assign(**{name: checked_column(values, f"the target {name!r}")}), name


def unused_name(name: str, columns: Iterable[Any]) -> str:
    """Return an unused column name."""
    taken = set(map(str, columns))
    while name in taken:
        name += "_"
    return name


def frame_name(frame: pd.DataFrame) -> str:
    """Return the name of a DataFrame as a source; equal names mean equal content."""
    return FRAME + content_digest("frame", _content(frame))[:_DIGITS]


def frame_dataset(source: Source, frame: pd.DataFrame, test: pd.DataFrame | None = None) -> Dataset:
    """Make a data set of training rows and, if given, test rows; raises BadInput."""
    source = replace(source, data=_WHERE, test=source.test if test is None else TEST_FRAME)
    return table_dataset(source, FRAME.rstrip(":"), frame, test)


def _content(frame: pd.DataFrame) -> Iterator[bytes]:
    for name in frame.columns:
        column, kind = frame[name], frame[name].dtype.kind
        if kind == "m":
            column = column.dt.total_seconds()  # of any unit
        if kind in "biufmM" and isinstance(column.dtype, np.dtype):
            yield f"{name}\0{kind}\0{column.dtype}\0".encode()
            yield np.ascontiguousarray(column.to_numpy()).tobytes()
        else:
            is_category = isinstance(column.dtype, pd.CategoricalDtype)
            cells = column.astype(object).where(column.notna(), None)
            yield f"{name}\0{'category' if is_category else 'object'}\0".encode()
            yield "\0".join(map(repr, cells)).encode()
