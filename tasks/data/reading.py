"""Reading of sources: as a data set to learn from, or as rows to predict.

A source is a file or folder, or one of the small data sets that come with scikit-learn.
"""

import logging
from dataclasses import replace

import pandas as pd
from sklearn import datasets

from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.cohort.cohort import generate
from prefect_tune.tasks.data.cohort.spec import cohort_named
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.event_source import (
    events_dataset,
    read_event_rows,
    read_events_source,
    refuse_columns,
)
from prefect_tune.tasks.data.event_tables import events_table, labels_table
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.formats.format import Given
from prefect_tune.tasks.data.formats.recognition import recognise
from prefect_tune.tasks.data.formats.registry import format_named
from prefect_tune.tasks.data.frames import FRAME
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.table_source import read_frame, table_dataset

BUNDLED = ("breast_cancer", "diabetes", "digits", "iris", "wine")
"""What `sklearn:NAME` knows."""
TARGET = "target"
"""Their column to predict."""


def bundled_table(name: str) -> pd.DataFrame:
    """Return the features and the column `target`.

    Raises:
        BadInput: If it has several targets.
        UnknownName: If scikit-learn brings no such set.
    """
    if name == "linnerud":
        raise BadInput("sklearn:linnerud has three targets; a study predicts one")
    if name not in BUNDLED:
        raise UnknownName("data set of scikit-learn", name, BUNDLED)
    return getattr(datasets, f"load_{name}")(as_frame=True).frame


_LOGGER = logging.getLogger(__name__)
_COHORT = "cohort:"
_BUNDLED = "sklearn:"


def read_source(source: Source) -> Dataset:
    """Read and check a data set.

    Raises:
        BadInput: If it cannot be used; with the remedy.
        UnknownName: If there is no such cohort, bundled set or format.
    """
    if source.format is not None:
        format_named(source.format)
    if source.data.startswith(_COHORT):
        return _read_cohort(source)
    if source.data.startswith(FRAME):
        raise BadInput(
            f"{source.data} was a DataFrame in the memory of another process, and only its own "
            "studies have a copy; give the DataFrame once more, or a file of it"
        )
    if source.data.startswith(_BUNDLED):
        name = source.data.removeprefix(_BUNDLED)
        frame = bundled_table(name)
        return table_dataset(replace(source, target=source.target or TARGET), name, frame)
    location = Location.at(source.data)
    found = recognise(Given(location, source.target, source.labels), source.format)
    if found.kind == "events":
        return read_events_source(source, found, location)
    frame = pd.concat(found.frames(location, source.categorical), ignore_index=True)
    return replace(table_dataset(source, location.stem or "data", frame), format=found.name)


def read_features(
    data: str, labels: str | None, training: Dataset, chosen: str | None = None
) -> pd.DataFrame | EventRows:
    """Read rows to predict: a table as it is in its file, or events with the rows of labels.

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
        return read_frame(data, [str(c) for c in training.X.select_dtypes("category")], chosen)
    if data.startswith(_COHORT):
        dataset = _read_cohort(Source(data))
        if isinstance(dataset.X, EventRows):
            return dataset.X
    location = Location.at(data)
    if not location.exists():
        raise BadInput(f"there is no file or folder {data}")
    if labels is None:
        raise BadInput(
            f"{data} holds events: name the patients and times to predict with --labels FILE "
            "(columns patient and prediction time)"
        )
    found = recognise(Given(location, labels=labels), chosen)
    if found.kind == "table":
        raise BadInput(f"{data} is read as a table, but the model takes events")
    rows, notes = read_event_rows(data, labels, found, location)
    for note in notes:
        _LOGGER.warning(note)
    return rows


def _read_cohort(source: Source) -> Dataset:
    if source.test is not None:
        raise BadInput(
            f"{source.data} is generated, so --test does not apply; hold rows out with --test-size"
        )
    refuse_columns(source)
    name = source.data.removeprefix(_COHORT)
    cohort = generate(cohort_named(name))
    events, _ = events_table([cohort.events], source.data)
    rows, target = labels_table([cohort.labels], source.data, None)
    return events_dataset(source, f"cohort-{name.partition('?')[0]}", events, rows, target)
