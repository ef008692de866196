"""From what the user names to a data set: tables, patient events in several formats, cohorts."""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.bad_input import BadInput, need_column
from prefect_tune.tasks.data.bundled import TARGET, bundled_table
from prefect_tune.tasks.data.cohort import cohort_named, generate
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.events import (
    EVENT_TEXTS,
    LABEL_TEXTS,
    EventRows,
    events_table,
    labels_table,
)
from prefect_tune.tasks.data.files import Location, columns_called, read_table, shards
from prefect_tune.tasks.data.formats import FORMATS, check_format, recognised
from prefect_tune.tasks.data.omop import omop_events
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.synthea import synthea_events
from prefect_tune.tasks.data.table import (
    features_of,
    groups_of,
    like_training,
    need_targets,
    target_of,
)

__all__ = ["read_features", "read_source"]

_LOGGER = logging.getLogger(__name__)
_COHORT = "cohort:"
_BUNDLED = "sklearn:"


def read_source(source: Source) -> Dataset:
    """Read and check a data set.

    Raises:
        BadInput: If it cannot be used; says what is wrong and what would be right.
        UnknownName: If there is no such cohort, bundled set or format.
    """
    if source.format is not None:
        check_format(source.format)
    if source.data.startswith(_COHORT):
        return _read_cohort(source)
    if source.data.startswith(_BUNDLED):
        name = source.data.removeprefix(_BUNDLED)
        frame = bundled_table(name)
        return _table_dataset(replace(source, target=source.target or TARGET), name, frame)
    location = Location.at(source.data)
    kind = recognised(location, source.format, source.target, source.labels)
    if kind == "table":
        frame = _whole(location, source.categorical)
        return replace(_table_dataset(source, location.stem or "data", frame), format=kind)
    if source.labels is None:
        raise BadInput(
            f"{source.data} is {FORMATS[kind]}, so the classes come from a table of their own: "
            "name it with --labels FILE or FOLDER (columns patient, prediction time and class)"
        )
    _refuse_columns(source)
    rows, target = _labels(source, source.labels)
    is_test = None
    if source.test is not None:
        test_rows, test_target = _labels(source, source.test)
        is_test = np.repeat([False, True], [len(rows), len(test_rows)])
        rows = pd.concat([rows, test_rows], ignore_index=True)
        target = pd.concat([target, test_target], ignore_index=True).rename(str(target.name))
    events, notes = _read_events(location, kind)
    dataset = _events_dataset(source, location.stem or "data", events, rows, target, is_test)
    return replace(dataset, format=kind, notes=(*dataset.notes, *notes))


def read_features(
    data: str, labels: str | None, training: Dataset, chosen: str | None = None
) -> pd.DataFrame | EventRows:
    """Rows to predict: a table as it is in its file, or events with the rows of their labels.

    Args:
        data: A file or folder of any format of the same kind as the training data.
        labels: For events: patients and prediction times; classes are not needed.
        training: The training data.
        chosen: The format, if it is not to be found out.

    Raises:
        BadInput: If the data cannot be read.
    """
    if isinstance(training.X, pd.DataFrame):
        if data.startswith(_BUNDLED):
            return bundled_table(data.removeprefix(_BUNDLED))
        texts = [str(c) for c in training.X.select_dtypes("category")]
        return _whole(Location.at(data), texts)
    if data.startswith(_COHORT):
        dataset = _read_cohort(Source(data))
        if isinstance(dataset.X, EventRows):
            return dataset.X
    if labels is None:
        raise BadInput(
            f"{data} holds events: name the patients and times to predict with --labels FILE "
            "(columns patient and prediction time)"
        )
    location = Location.at(data)
    kind = recognised(location, chosen, None, labels)
    if kind == "table":
        raise BadInput(f"{data} is read as a table, and the model takes events")
    where = _labels_place(data, labels)
    tables = (table.assign(label=0) for table in _event_tables(where, LABEL_TEXTS))
    rows, _ = labels_table(tables, where.url, "label")
    events, notes = _read_events(location, kind)
    for note in notes:
        _LOGGER.warning(note)
    return EventRows.build(events, rows)


def _read_cohort(source: Source) -> Dataset:
    if source.test is not None:
        raise BadInput(f"{source.data} is made, not read; hold rows back with --test-size")
    _refuse_columns(source)
    name = source.data.removeprefix(_COHORT)
    cohort = generate(cohort_named(name))
    events, _ = events_table([cohort.events], source.data)
    rows, target = labels_table([cohort.labels], source.data, None)
    return _events_dataset(source, f"cohort-{name.partition('?')[0]}", events, rows, target)


def _table_dataset(source: Source, name: str, frame: pd.DataFrame) -> Dataset:
    where = source.data
    if source.target is None:
        shown = ", ".join(map(str, frame.columns[-20:]))
        raise BadInput(
            f"{where} is a table, so say which column to predict with --target COLUMN. "
            f"Its columns: {shown}"
        )
    if source.labels is not None:
        raise BadInput(f"{where} is a table; --labels {source.labels} goes with events")
    _check_roles(source)
    frame, notes = _with_target(frame, source.target, where, source)
    features = frame.drop(columns=[source.target])
    group = _taken(features, source.group, where)
    features = features.drop(columns=[] if group is None else [group.name])
    dropped = [column for column in source.drop if column not in source.aside]
    X, more = features_of(features, dropped, source.categorical, where)
    target, is_test = frame[source.target], None
    if source.test is not None:
        texts = [str(c) for c in X.select_dtypes("category")]
        test, said = _with_target(
            _whole(Location.at(source.test), texts), source.target, source.test, source
        )
        notes += said
        is_test = np.repeat([False, True], [len(frame), len(test)])
        parts = (X, like_training(test, X, source.test))
        joined = [part.astype(dict.fromkeys(texts, object)) for part in parts]
        X = canonical(pd.concat(joined, ignore_index=True))
        target = pd.concat([target, test[source.target]], ignore_index=True)
        if group is not None:
            of_test = _taken(test, source.group, source.test)
            group = pd.concat([group, of_test], ignore_index=True)
    y, classes, said = target_of(target, where, source.predicts)
    notes += said
    groups = None if group is None else groups_of(group, where)
    if groups is not None and is_test is not None:
        _check_apart(groups, is_test, f"values of {source.group}")
    X, aside = X.drop(columns=list(source.aside)), X[list(source.aside)]
    if X.shape[1] == 0:
        raise BadInput(f"{where} has no column left to learn from")
    return Dataset(
        name, "table", X, y, classes, groups, is_test, aside if source.aside else None,
        (*notes, *more), "table",
    )  # fmt: skip


def _with_target(
    frame: pd.DataFrame, target: str, where: str, source: Source
) -> tuple[pd.DataFrame, list[str]]:
    """The rows that have a class, or all if those without are not to be left out."""
    need_column(target, frame.columns, where)
    if not len(frame):
        raise BadInput(f"{where} has no rows")
    missing = int(frame[target].isna().sum())
    if not source.drop_missing_target:
        need_targets(frame[target], where)
    if not missing:
        return frame, []
    kept = frame.dropna(subset=[target]).reset_index(drop=True)
    return kept, [f"{missing} rows without {target} are left out"]


def _check_roles(source: Source) -> None:
    """Check that each column is used for one thing.

    Raises:
        BadInput: If one is named by two options.
    """
    used: dict[str, str] = {}
    named = {
        "target": [source.target],
        "group": [source.group],
        "drop": source.drop,
        "categorical": source.categorical,
    }
    for option, columns in named.items():
        for column in columns:
            if column is not None and used.setdefault(column, option) != option:
                raise BadInput(
                    f"column {column!r} is named by --{used[column]} and by --{option}; it is used "
                    "for one of them"
                )


def _taken(frame: pd.DataFrame, column: str | None, where: str) -> pd.Series | None:
    if column is None:
        return None
    need_column(column, frame.columns, where)
    return frame[column]


def _labels(source: Source, labels: str) -> tuple[pd.DataFrame, pd.Series]:
    """Rows and classes of a table of labels."""
    location = _labels_place(source.data, labels)
    tables = _event_tables(location, LABEL_TEXTS - {(source.target or "").lower()})
    rows, target = labels_table(tables, location.url, source.target)
    if not source.drop_missing_target:
        need_targets(target, location.url)
    else:
        rows, target = rows[target.notna().to_numpy()], target.dropna()
    return rows.reset_index(drop=True), target.reset_index(drop=True)


def _check_apart(groups: NDArray[np.int64], is_test: NDArray[np.bool_], what: str) -> None:
    both = np.intersect1d(groups[is_test], groups[~is_test])
    if len(both):
        raise BadInput(
            f"{len(both)} {what} have rows to learn from and rows of the test; each has either"
        )


def _refuse_columns(source: Source) -> None:
    """Options that speak of a table's columns have nothing to speak of in events."""
    named = {"group": source.group, "drop": source.drop, "categorical": source.categorical}
    for option, value in named.items():
        if value:
            why = "rows of a patient always stay in one fold" if option == "group" else ""
            raise BadInput(
                f"--{option} names a column of a table, and {source.data} holds events"
                + (f"; {why}" if why else "")
            )


def _events_dataset(  # noqa: PLR0917
    source: Source,
    name: str,
    events: pd.DataFrame,
    rows: pd.DataFrame,
    target: pd.Series,
    is_test: NDArray[np.bool_] | None = None,
) -> Dataset:
    where = source.labels or source.data
    y, classes, notes = target_of(target.reset_index(drop=True), where, source.predicts)
    X = EventRows.build(events, rows)
    groups = groups_of(X.rows["subject_id"], where)
    if is_test is not None:
        _check_apart(groups, is_test, "patients")
    has_repeats = len(np.unique(groups)) < len(groups)
    return Dataset(
        name,
        "events",
        X,
        y,
        classes,
        groups if has_repeats else None,
        is_test,
        notes=tuple(notes),
        format="events",
    )


def _read_events(location: Location, kind: str) -> tuple[pd.DataFrame, list[str]]:
    tables: Iterable[pd.DataFrame]
    match kind:
        case "meds":
            location = location.below("data")
            tables = _event_tables(location, EVENT_TEXTS)
        case "omop":
            tables = omop_events(location)
        case "synthea":
            tables = synthea_events(location)
        case _:
            tables = _event_tables(location, EVENT_TEXTS)
    return events_table(tables, location.url)


def _labels_place(data: str, labels: str) -> Location:
    """The labels as named, else below the data's folder."""
    named = Location.at(labels)
    if named.exists():
        return named
    below = Location.at(data).below(labels)
    if below.exists():
        return below
    raise BadInput(f"there are no labels at {labels}, nor at {below.url}")


def _tables(location: Location, texts: Sequence[str] = ()) -> Iterator[pd.DataFrame]:
    """The table of a file, or those of all Parquet files below a folder, in order of names."""
    for shard in shards(location):
        yield read_table(shard, texts)


def _event_tables(location: Location, texts: Collection[str]) -> Iterator[pd.DataFrame]:
    """Tables of events or labels; columns called as in `texts` are read as texts."""
    for shard in shards(location):
        yield read_table(shard, columns_called(shard, texts))


def _whole(location: Location, texts: Sequence[str] = ()) -> pd.DataFrame:
    return pd.concat(_tables(location, texts), ignore_index=True)
