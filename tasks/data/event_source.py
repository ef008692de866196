"""A source of patient events, with a table of labels."""

from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.event_tables import (
    LABEL_TEXTS,
    events_table,
    labels_table,
    read_event_tables,
)
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.formats.format import Format
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.table_source import check_apart, groups_of
from prefect_tune.tasks.data.target import need_targets, target_of


def read_events_source(source: Source, found: Format, location: Location) -> Dataset:
    """Read events in a format, and their labels.

    Raises:
        BadInput: If it cannot be used.
    """
    if source.labels is None:
        raise BadInput(
            f"{source.data} is {found.description}, so the classes come from a table of their own: "
            "name it with --labels FILE or FOLDER (columns patient, prediction time and class)"
        )
    refuse_columns(source)
    rows, target = _labels(source, source.labels)
    is_test = None
    if source.test is not None:
        test_rows, test_target = _labels(source, source.test)
        is_test = np.repeat([False, True], [len(rows), len(test_rows)])
        rows = pd.concat([rows, test_rows], ignore_index=True)
        target = pd.concat([target, test_target], ignore_index=True).rename(str(target.name))
    events, notes = events_table(found.frames(location), found.root(location).url)
    dataset = events_dataset(source, location.stem or "data", events, rows, target, is_test)
    return replace(dataset, format=found.name, notes=(*dataset.notes, *notes))


def read_event_rows(
    data: str, labels: str, found: Format, location: Location
) -> tuple[EventRows, list[str]]:
    """Read events and the rows to predict; classes are not needed.

    Returns:
        The rows, and notes for the user.

    Raises:
        BadInput: If they cannot be read.
    """
    named = _labels_location(data, labels)
    tables = (table.assign(label=0) for table in read_event_tables(named, LABEL_TEXTS))
    rows, _ = labels_table(tables, named.url, "label")
    events, notes = events_table(found.frames(location), found.root(location).url)
    return EventRows.build(events, rows), notes


def refuse_columns(source: Source) -> None:
    """Raise if an option names a column of a table.

    Raises:
        BadInput: Names the option.
    """
    named = {"group": source.group, "drop": source.drop, "categorical": source.categorical}
    for option, value in named.items():
        if value:
            why = "rows of a patient always stay in one fold" if option == "group" else ""
            raise BadInput(
                f"--{option} names a column of a table, and {source.data} holds events"
                + (f"; {why}" if why else "")
            )


def events_dataset(  # noqa: PLR0917
    source: Source,
    name: str,
    events: pd.DataFrame,
    rows: pd.DataFrame,
    target: pd.Series,
    is_test: NDArray[np.bool_] | None = None,
) -> Dataset:
    """Make a data set of events and labels.

    Args:
        source: Where they come from.
        name: Name of the data set.
        events: Columns subject_id, time, code, value.
        rows: Columns subject_id and prediction_time, n rows.
        target: Their classes or numbers.
        is_test: Whether each is a row of the test, shape (n,); None if none are named.

    Raises:
        BadInput: If they cannot be used.
    """
    where = source.labels or source.data
    y, classes, notes = target_of(target.reset_index(drop=True), where, source.predicts)
    X = EventRows.build(events, rows)
    groups = groups_of(X.rows["subject_id"], where)
    if is_test is not None:
        check_apart(groups, is_test, "patients")
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


def _labels(source: Source, labels: str) -> tuple[pd.DataFrame, pd.Series]:
    """Read rows and classes from a table of labels."""
    location = _labels_location(source.data, labels)
    tables = read_event_tables(location, LABEL_TEXTS - {(source.target or "").lower()})
    rows, target = labels_table(tables, location.url, source.target)
    if not source.drop_missing_target:
        need_targets(target, location.url)
    else:
        rows, target = rows[target.notna().to_numpy()], target.dropna()
    return rows.reset_index(drop=True), target.reset_index(drop=True)


def _labels_location(data: str, labels: str) -> Location:
    """Find the labels as named, else below the data's folder."""
    named = Location.at(labels)
    if named.exists():
        return named
    below = Location.at(data).below(labels)
    if below.exists():
        return below
    raise BadInput(f"there are no labels at {labels}, nor at {below.url}")
