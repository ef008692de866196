"""Sources with a table that includes the target: files, or a DataFrame in memory.

The target column contains classes or numbers. Another column may define groups: rows of one group
share a fold, and are either all test rows or all training rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.extensions import ExtensionArray
from sklearn.utils.validation import column_or_1d

from prefect_tune.storage.keys import content_digest
from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.bad_input import BadInput, need_column, shown_columns
from prefect_tune.tasks.data.dataset import Dataset, Label, value_ids
from prefect_tune.tasks.data.files import (
    INDEX,
    NOTES,
    flat_name,
    joined,
    need_scalars,
    with_flat_names,
)
from prefect_tune.tasks.data.formats.format import FORMATS, Given, recognize
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.notation import (
    DECIMAL,
    NoNumbers,
    as_numbers,
    decimal_mark,
    is_texts,
    numbers_in,
)
from prefect_tune.tasks.data.row_reader import (
    RowReader,
    as_pandas,
    category_texts,
    plain_column,
    without_gaps,
)
from prefect_tune.tasks.data.schema import (
    NUMBERS,
    RowTimes,
    features_of,
    like_training,
    row_times,
    time_text,
)
from prefect_tune.tasks.data.source import FRAME, GAPS, Source

_CLASSES = 50
CLASSES_WITH_DECIMALS = 10
"""Maximum number of distinct values at which a target with fractions still counts as classes."""


_Tables = list[tuple[str, pd.DataFrame]]
"""The table of training rows and, if given, the table of test rows, with names for messages.
"""


def groups_of(column: pd.Series, where: str) -> NDArray[np.int64]:
    """Return the group number of each row, shape (n,); `BadInput` if a value is missing."""
    missing = int(column.isna().sum())
    if missing:
        raise BadInput(f"{missing} rows of {where} have no group in column {column.name!r}")
    groups, _ = pd.factorize(category_texts(column))
    return groups.astype(np.int64)


def check_apart(groups: NDArray[np.int64], is_test: NDArray[np.bool_], what: str) -> None:
    """Raise `BadInput` if a group has both training and test rows; arrays have shape (n,)."""
    both = np.intersect1d(groups[is_test], groups[~is_test])
    if len(both):
        raise BadInput(f"{len(both)} {what} have both training and test rows")


def read_frame(
    url: str,
    texts: Sequence[str],
    chosen: str | None = None,
    gaps: tuple[str, ...] = GAPS,
    decimal: str = "",
) -> pd.DataFrame:
    """Read the table at a URL, in any format for tables.

    Args:
        url: Location of the file or folder.
        texts: Columns to read as strings.
        chosen: Name of the format; None to detect the format. Formats for events are ignored.
        gaps: Strings that count as missing.
        decimal: Decimal mark of numbers in strings; empty to detect the mark from the values.

    Raises:
        BadInput: If the table cannot be read.
    """
    if chosen is not None and FORMATS.named(chosen).kind != "table":
        chosen = None
    location = replace(Location.at(url, gaps), decimal=decimal)
    found = recognize(Given(location), chosen, "table")
    return joined(found.frames(location, texts))


def table_dataset(
    source: Source, name: str, frame: pd.DataFrame, test_frame: pd.DataFrame | None = None
) -> Dataset:
    """Build a data set from a table; test rows come from `test_frame` or the source's file.

    Raises:
        BadInput: If the data cannot be used.
    """
    where, source = source.data, _with_flat_names(source)
    if source.target is None:
        raise BadInput(
            f"{where} is a table, so name the column to predict with --target COLUMN. Its columns: "
            f"{shown_columns(frame.columns)}"
        )
    if source.labels is not None:
        raise BadInput(f"{where} is a table, but --labels {source.labels} is for events")
    roles = _roles(source)
    index = [n for n in frame.attrs.get(INDEX, ()) if n not in {*roles, *source.aside}]
    no_features = [name for name in index if name in (source.key or ())]
    of_index = [name for name in index if name not in no_features]
    frame, notes = _with_target(frame.drop(columns=of_index), where, source)
    why = "the index of the DataFrame is left out, unless an option such as --group names it"
    notes += [f"{name}: {why}" for name in of_index]
    decimal = frame.attrs[DECIMAL] = source.decimal_mark or decimal_mark(frame)
    for named in filter(None, (source.group, source.time)):
        need_column(named, frame.columns, where)
    no_features += [n for n, role in roles.items() if role in {"target", "group", "time"}]
    features = frame.drop(columns=no_features)
    dropped = [column for column in source.drop if column not in source.aside]
    X, reader, feature_notes = features_of(
        features, dropped, source.categorical, where, source.gaps, source.aside, source.texts
    )
    notes += [*frame.attrs.get(NOTES, ()), *_gap_notes(features, source)]
    tables, is_test = [(where, frame)], None
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
        tables.append((source.test, test))
    target = _column(source.target, tables, ())
    y, classes, more_notes = target_of(target, where, source.predicts, decimal)
    notes += more_notes
    groups, times, ids = None, None, None
    if source.group is not None:
        group = _column(source.group, tables, source.gaps)
        groups = groups_of(group, where)
        ids = value_ids(group) if source.keeps_ids else None
        if is_test is not None:
            check_apart(groups, is_test, f"values of {source.group}")
    if source.time is not None:
        times, note = _times(source.time, tables, source.gaps)
        notes.append(note)
    if source.key:
        ids, more_notes = _key_ids(source.key, tables, source.gaps)
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


def _column(name: str, tables: _Tables, gaps: Sequence[str]) -> pd.Series:
    """Return a column of all tables; strings in `gaps` become empty cells."""
    for where, table in tables:
        need_column(name, table.columns, where)
    columns = [table[name] for _, table in tables]
    columns = [without_gaps(column, gaps) for column in columns] if gaps else columns
    return pd.concat(columns, ignore_index=True)


def _key_ids(
    names: Sequence[str], tables: _Tables, gaps: Sequence[str]
) -> tuple[NDArray[np.uint64], list[str]]:
    """Return the hash of the key of each row, shape (n,), and a note if rows share a key."""
    columns = [_column(name, tables, gaps) for name in names]
    ids = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        if column.isna().any():
            row = int(column.isna().argmax()) + 1
            where = tables[0][0]
            raise BadInput(f"row {row} of {where} has no {column.name!r}, which is part of --key")
        ids = ids * np.uint64(31) + value_ids(column)
    shared = pd.Series(ids).duplicated(keep=False)
    if not shared.any():
        return ids, []
    rows = np.flatnonzero(ids == ids[shared.argmax()])
    value = ", ".join(f"{column.name} {column.iloc[rows[0]]}" for column in columns)
    shown = " and ".join(str(row + 1) for row in rows[:2])
    return ids, [
        f"{shared.sum():,} rows share a key and count as one row, such as {value} in rows {shown}"
    ]


def _times(name: str, tables: _Tables, gaps: Sequence[str]) -> tuple[RowTimes, str]:
    """Return the times of all rows, and a note on the times of the first table."""
    read = [row_times(table[name], where, gaps) for where, table in tables]
    (times, how), where = read[0], tables[0][0]
    if len({one.dtype.kind for one, _ in read}) > 1:
        raise BadInput(
            f"column {name!r} has dates in one of {where} and {tables[1][0]}, but numbers in the "
            "other",
            option="time",
            value=name,
            remedy="write both columns in the same way",
        )
    first, last = time_text(times.min()), time_text(times.max())
    if len(times) and (times == times[0]).all():
        raise BadInput(
            f"column {name!r} of {where} has the same time in all rows ({first}), so no row is "
            "newer than others",
            option="time",
            value=name,
            remedy="name another column, or omit the option",
        )
    note = f"times in column {name}: {first} to {last}, read as {how}"
    return np.concatenate([one for one, _ in read]), note


def _gap_notes(frame: pd.DataFrame, source: Source) -> list[str]:
    """Return a note if strings of a DataFrame count as missing by default."""
    if source.na_values is not None or source.data != _WHERE:
        return []
    found = dict[str, set[str]]()
    for name, column in frame.items():
        texts = {cell for cell in column if isinstance(cell, str)} if is_texts(column) else set()
        if gaps := texts.intersection(source.gaps):
            found[str(name)] = gaps
    named = ", ".join(sorted({repr(text) for values in found.values() for text in values}))
    note = f"{named} in column {shown_columns(found)} counts as missing; see --na-values"
    return [note] if found else []


def _with_flat_names(source: Source) -> Source:
    """Return a source with two-level column names joined."""
    changed: dict[str, Any] = {}
    for option in ("target", "group", "key", "time", "drop", "categorical", "aside"):
        if value := getattr(source, option):
            is_name = isinstance(value, str)
            changed[option] = flat_name(value) if is_name else tuple(map(flat_name, value))
    return replace(source, **changed)


def _with_target(frame: pd.DataFrame, where: str, source: Source) -> tuple[pd.DataFrame, list[str]]:
    """Drop rows without a target if the user requested this; otherwise reject such rows."""
    target = str(source.target)
    need_column(target, frame.columns, where)
    need_scalars(frame[target], where)
    if where in {_WHERE, TEST_FRAME}:  # files were already read with the same rules
        values = without_gaps(frame[target], source.gaps)
        frame = frame.assign(**{target: checked_column(values, f"the target {target!r}")})
    if not len(frame):
        raise BadInput(f"{where} has no rows")
    if not source.drop_missing_target:
        need_targets(frame[target], where)
    if not (n_missing := int(frame[target].isna().sum())):
        return frame, []
    kept = frame.dropna(subset=[target]).reset_index(drop=True)
    return kept, [f"left out: {n_missing} rows without {target}"]


def _roles(source: Source) -> dict[str, str]:
    """Return the option that names each column; `BadInput` if two options name the same column."""
    if source.key and source.group is not None:
        raise BadInput(
            f"--key {','.join(source.key)} cannot be combined with --group {source.group}, because "
            "rows of known groups never count as new; use only one of them"
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
    return used


TEST_FRAME = "the DataFrame of test rows"
"""Name of the DataFrame of test rows in messages."""
_WHERE = "the DataFrame"
_TARGET = "target"
_DIGITS = 16


def checked_frame(frame: pd.DataFrame, where: str = _WHERE) -> pd.DataFrame:
    """Return a copy of a DataFrame with strings as column names and rows numbered from 0.

    Index levels with unused names become columns, which are listed in `attrs`.

    Raises:
        BadInput: If two columns have the same name, or a column is sparse; the message names the
            column.
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
    """Return a target or groups with rows numbered from 0; objects become numbers or truth values.

    Raises:
        BadInput: If the values have mixed types.
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
            "all strings, for instance with .astype(str)"
        )
    return column


def as_column(values: Any) -> pd.Series:
    """Return values of any library as a column; shape (n, 1) gives scikit-learn's warning."""
    values = as_pandas(values)
    is_column = isinstance(values, ExtensionArray | pd.Series)
    if is_column or (isinstance(values, list) and np.ndim(values) == 1):
        return pd.Series(values)
    names = list(getattr(values, "columns", [None]))
    return pd.Series(column_or_1d(values, warn=True), name=names[0])


def target_of(
    target: pd.Series, where: str, predicts: str | None = None, decimal: str = ""
) -> tuple[NDArray[Any], tuple[Label, ...], list[str]]:
    """Encode the target as classes or numbers; strings of many different numbers become numbers.

    Args:
        target: Target values to encode.
        where: Name of the table in messages.
        predicts: Kind of prediction, `classification` or `regression`; None to infer the kind, with
            regression for many distinct numbers.
        decimal: Decimal mark in the rest of the table, if known.

    Returns:
        For classes, positions in the sorted classes, and the classes. For numbers, the numbers and
        an empty tuple. The third value contains notes for the user.

    Raises:
        BadInput: If a target is missing or infinite, if all targets are equal, or if most but not
            all targets are numbers.
    """
    need_targets(target, where)
    if not len(target):
        raise BadInput(f"{where} has no rows")
    if target.nunique() < 2:
        raise BadInput(
            f"target {target.name!r} of {where} is {target.tolist()[0]!r} in all rows, so there is "
            "nothing to learn"
        )
    target, notes = number_texts(target, where, predicts, decimal)
    is_numeric = pd.api.types.is_numeric_dtype(target) and not pd.api.types.is_bool_dtype(target)
    if is_numeric and np.isinf(target.to_numpy(dtype=np.float64)).any():
        raise BadInput(
            f"target {target.name!r} of {where} has infinite values; remove or fix these rows"
        )
    if predicts is None and is_numeric and _are_numbers(target):
        predicts = "regression"
        note = f"target {target.name} has {target.nunique()} different numbers"
        notes.append(f"{note}, so this is a regression; --metric error treats numbers as classes")
    if predicts != "regression":
        codes, values = pd.factorize(target)
        classes, order = np.unique(_labels(pd.Series(values)), return_inverse=True)
        seen: dict[str, str] = {}
        for text in map(str, classes):
            if (other := seen.setdefault(text.strip().casefold(), text)) != text:
                notes.append(
                    f"classes {other!r} and {text!r} of target {target.name} differ only in "
                    "capitals or blanks; if they are one class, use one spelling"
                )
        return order[codes].astype(np.int32), tuple(label.item() for label in classes), notes
    if not is_numeric:
        raise BadInput(
            f"target {target.name!r} of {where} holds {target.iloc[0]!r}, which is not a number; "
            "choose a --metric and a --space for classification"
        )
    return target.to_numpy(dtype=np.float64), (), notes


def number_texts(
    target: pd.Series, where: str, predicts: str | None, decimal: str
) -> tuple[pd.Series, list[str]]:
    """Convert a target's strings to numbers if the strings are numbers to predict; add a note.

    Raises:
        BadInput: If most but not all strings are numbers to predict.
    """
    found = None if predicts == "classification" else numbers_in(target, decimal)
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
            remedy=f"leave out these rows with --na-values {quote(strays.iloc[0])} "
            f"--drop-missing-target, or {remedy}",
        )
    return numbers, [f"target {target.name}: {found.notation.of(target)}"]


def _are_numbers(target: pd.Series) -> bool:
    is_whole = (target.to_numpy(dtype=np.float64) % 1 == 0).all()
    most = _CLASSES if is_whole else CLASSES_WITH_DECIMALS
    return target.nunique() > most


def need_targets(target: pd.Series, where: str) -> None:
    """Raise `BadInput` unless every row has a target."""
    missing = int(target.isna().sum())
    if missing:
        raise BadInput(
            f"{missing} of {len(target)} rows of {where} have no {target.name!r}, such as row "
            f"{int(target.isna().argmax()) + 1}; leave out such rows with --drop-missing-target"
        )


def _labels(target: pd.Series) -> NDArray[Any]:
    """Return labels in the user's type: integers, other numbers, truth values or strings."""
    if isinstance(target.dtype, pd.CategoricalDtype):
        target = target.astype(target.cat.categories.dtype)
    if pd.api.types.is_bool_dtype(target):
        return np.asarray(target, dtype=np.bool_)
    if pd.api.types.is_float_dtype(target):
        return np.asarray(target, dtype=np.float64)
    if pd.api.types.is_numeric_dtype(target) and (target <= np.iinfo(np.int64).max).all():
        return np.asarray(target, dtype=np.int64)
    return np.array([str(label) for label in target])


def with_target(frame: pd.DataFrame, target: Any) -> tuple[pd.DataFrame, str | None]:
    """Return a checked DataFrame that includes the target, and the name of the target column.

    Args:
        frame: Features, including the target column if `target` is a name.
        target: Name of the target column, or the values in row order. Values of shape (n, 1) cause
            a warning. Values with the name of an existing column are renamed.

    Raises:
        BadInput: If the number of values differs from the number of rows.
    """
    if isinstance(target, tuple) and flat_name(target) in frame:
        target = flat_name(target)
    if target is None or isinstance(target, str):
        return frame, target
    if np.shape(target := as_pandas(target))[1:] not in {(), (1,)}:
        raise BadInput(f"a target needs one value per row; got the shape {np.shape(target)}")
    values = as_column(target)
    name = unused_name(_TARGET if values.name is None else str(values.name), frame)
    if len(values) != len(frame):
        raise BadInput(f"the target has {len(values)} values, but {_WHERE} has {len(frame)} rows")
    return frame.assign(**{name: checked_column(values, f"the target {name!r}")}), name


def unused_name(name: str, columns: Iterable[Any]) -> str:
    """Return `name`, with underscores appended until no column has this name."""
    taken = set(map(str, columns))
    while name in taken:
        name += "_"
    return name


def frame_name(frame: pd.DataFrame) -> str:
    """Return the source name of a DataFrame, which is equal for equal content."""
    return FRAME + content_digest("frame", _content(frame))[:_DIGITS]


def frame_dataset(source: Source, frame: pd.DataFrame, test: pd.DataFrame | None = None) -> Dataset:
    """Build a data set from training rows and optional test rows; may raise `BadInput`."""
    source = replace(source, data=_WHERE, test=source.test if test is None else TEST_FRAME)
    return table_dataset(source, FRAME.rstrip(":"), frame, test)


def _content(frame: pd.DataFrame) -> Iterator[bytes]:
    for name in frame.columns:
        column, kind = frame[name], frame[name].dtype.kind
        if kind == "m":
            column = column.dt.total_seconds()  # durations
        if kind in "biufmM" and isinstance(column.dtype, np.dtype):
            yield f"{name}\0{kind}\0{column.dtype}\0".encode()
            yield np.ascontiguousarray(column.to_numpy()).tobytes()
        else:
            is_category = isinstance(column.dtype, pd.CategoricalDtype)
            cells = column.astype(object).where(column.notna(), None)
            yield f"{name}\0{'category' if is_category else 'object'}\0".encode()
            yield "\0".join(map(repr, cells)).encode()
