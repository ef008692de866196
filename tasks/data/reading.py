"""Reading of sources as training data sets or as rows to predict.

A source is a file or folder with a table, a file or folder with patient events and a separate table
of labels, a generated cohort, or a small data set of scikit-learn.
"""

import logging
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn import datasets

from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.tasks.bad_input import BadInput, need_column, shown_columns
from prefect_tune.tasks.data.cohort import cohort_named, generate
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.event_tables import (
    LABEL_TEXTS,
    events_table,
    has_dates_alone,
    labels_table,
    read_event_tables,
)
from prefect_tune.tasks.data.events import EventRows, as_ids, like_ids
from prefect_tune.tasks.data.files import NOTES, joined, read_table
from prefect_tune.tasks.data.formats.format import FORMATS, Format, Given, recognize
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.source import FRAME, GAPS, Source
from prefect_tune.tasks.data.tables import (
    check_apart,
    groups_of,
    need_targets,
    read_frame,
    table_dataset,
    target_of,
)


def read_events_source(source: Source, found: Format, location: Location) -> Dataset:
    """Read events in a known format and their labels; may raise `BadInput`."""
    if source.labels is None:
        raise BadInput(
            f"{source.data} is {found.description}, which needs a separate table of labels: name "
            "it with --labels FILE or FOLDER (columns patient, prediction time and class)"
        )
    _refuse_columns(source)
    rows, target, reading_notes = _labels(source, source.labels)
    is_test = None
    if source.test is not None:
        test_rows, test_target, more_notes = _labels(source, source.test)
        reading_notes += more_notes
        is_test = np.repeat([False, True], [len(rows), len(test_rows)])
        rows = pd.concat([rows, test_rows], ignore_index=True)
        target = pd.concat([target, test_target], ignore_index=True).rename(str(target.name))
    if found.splits and (splits := location.below(found.splits)).exists():
        is_test, more_notes = _held_out(splits, rows, is_test, source)
        reading_notes += more_notes
    events, notes = events_table(found.frames(location), found.root(location).url, location.gaps)
    table, ignored = found.code_table(location, events["code"].unique().tolist())
    name = location.stem or "data"
    dataset = events_dataset(source, name, events, rows, target, is_test, table)
    notes = [*dataset.notes, *reading_notes, *notes, *ignored]
    used = [_labels_location(source, one) for one in (source.labels, source.test) if one]
    if found.tables and (unread := location.unread_tables(found.tables, used)):
        what = f"tables of {location.url} that the format {found.name} does not read"
        notes.append(f"{what}: {shown_columns(unread)}")
    return replace(dataset, format=found.name, notes=tuple(dict.fromkeys(notes)))


def _held_out(
    splits: Location, rows: pd.DataFrame, is_test: NDArray[np.bool_] | None, source: Source
) -> tuple[NDArray[np.bool_] | None, list[str]]:
    """Return whether each row's patient is a test patient (None to draw test rows), and notes.

    An option that names test rows takes precedence over the table of splits.
    """
    if is_test is not None or source.splits == "ignore":
        options = "--test" if is_test is not None else "--splits ignore or --test-size"
        return is_test, [f"{splits.url} is not used, because of {options}"]
    table = read_table(splits, ["subject_id"])
    for column in ("subject_id", "split"):
        need_column(column, table.columns, splits.url)
    ids = as_ids(table["subject_id"], splits.url)
    split_of = dict(zip(ids, table["split"], strict=True))
    split = like_ids(rows["subject_id"], ids).map(split_of).fillna("no split")
    counts = ", ".join(f"{n} of {name}" for name, n in split.value_counts().items())
    held_out = (split == "held_out").to_numpy()
    text = f"labels by split of {splits.url}: {counts}"
    if held_out.all():
        raise BadInput(f"{text}; no label is left for training", remedy="use --splits ignore")
    if not held_out.any():
        return None, [f"{text}; no subject is held_out, so test rows are drawn"]
    how = "labels of held_out subjects are test rows, all others (including tuning) training rows"
    return held_out, [f"{text}; {how} (--splits ignore draws test rows)"]


def explained_labels(source: Source) -> pd.DataFrame:
    """Return implausible labels (see `label_faults`); `BadInput` for tables."""
    location = Location.at(source.data, source.gaps)
    found = recognize(Given(location, source.target, source.labels), source.format)
    if found.kind != "events" or source.labels is None:
        raise BadInput(f"--explain-labels needs events and --labels; {source.data} has none")
    rows, target, _ = _labels(source, source.labels)
    events, _ = events_table(found.frames(location), found.root(location).url, location.gaps)
    return label_faults(EventRows.build(events, rows), target)


def read_event_rows(
    data: str, labels: str, found: Format, location: Location, training: EventRows
) -> tuple[EventRows, list[str]]:
    """Read events and the rows to predict, without classes; return the rows and notes.

    Times at midnight are dates if midnights were dates in training. A row whose patient has only a
    birth and static events up to the prediction time counts as a row without events. The new data
    have their own table of codes; fitted estimators keep the table from training.

    Raises:
        BadInput: If the data cannot be read.
    """
    named = _labels_location(Source(data, na_values=location.gaps), labels)
    tables = (table.assign(label=0) for table in read_event_tables(named, LABEL_TEXTS))
    rows, _ = labels_table(tables, named.url, "label")
    events, notes = events_table(
        found.frames(location),
        found.root(location).url,
        location.gaps,
        are_midnights_dates=has_dates_alone(training.events["time"]),
        trained=training.codes,
    )
    table, ignored = found.code_table(location, events["code"].unique().tolist())
    made = EventRows.build(events, rows, table)
    is_empty = made.start == made.stop
    if is_empty.any():
        example = made.rows["subject_id"][is_empty].iloc[0]
        ignored.append(
            f"{is_empty.sum()} of {len(rows)} rows to predict have no event up to their prediction "
            f"time (apart from birth), such as patient {example}; their prediction is the base "
            "rate of the training rows"
        )
    return made, [*notes, *ignored]


def _refuse_columns(source: Source) -> None:
    """Raise `BadInput` if events are read with an option that is for columns of tables."""
    for option in ("group", "drop", "categorical"):
        if getattr(source, option):
            why = "; rows of a patient always stay in one fold" if option == "group" else ""
            raise BadInput(
                f"--{option} is for columns of tables, but {source.data} holds events{why}"
            )


def events_dataset(  # noqa: PLR0917
    source: Source,
    name: str,
    events: pd.DataFrame,
    rows: pd.DataFrame,
    target: pd.Series,
    is_test: NDArray[np.bool_] | None = None,
    code_table: pd.DataFrame | None = None,
) -> Dataset:
    """Return a data set of events and labels.

    Args:
        source: Source of the data.
        name: Name of the data set.
        events: Columns subject_id, time, code, value.
        rows: Columns subject_id and prediction_time, n rows.
        target: Classes or numbers of the rows.
        is_test: Whether each row is a test row, shape (n,); None if no test rows are given.
        code_table: Descriptions and ancestors of the codes, or None.

    Raises:
        BadInput: If events or labels cannot be used.
    """
    where = source.labels or source.data
    X, target = EventRows.build(events, rows, code_table), target.reset_index(drop=True)
    faulty, faults = label_faults(X, target), list[str]()
    if n_faulty := faulty.index.nunique():
        counts = [
            f"{len(part)} {fault}, such as patient {part['subject_id'].iloc[0]}"
            for fault, part in faulty.groupby("fault", sort=False)
        ]
        text = f"{n_faulty} of {len(target)} labels of {where} cannot be right: {'; '.join(counts)}"
        if n_faulty > _HALF * len(target):
            raise BadInput(text, remedy="correct the labels, which --explain-labels lists")
        faults.append(f"{text} (--explain-labels lists them)")
    if not (has_events := X.start < X.stop).all():
        faults.append(f"left out: {(~has_events).sum()} labels without events")
        X = EventRows.build(events, rows[has_events].reset_index(drop=True), code_table)
        target = target[has_events].reset_index(drop=True)
        is_test = None if is_test is None else is_test[has_events]
    y, classes, notes = target_of(target, where, source.predicts)
    notes += faults
    groups = groups_of(X.rows["subject_id"], where)
    if is_test is not None:
        check_apart(groups, is_test, "patients")
    given = groups if X.rows["subject_id"].duplicated().any() else None
    return Dataset(
        name, "events", X, y, classes, given, is_test, notes=tuple(notes), format="events"
    )


def _labels(source: Source, labels: str) -> tuple[pd.DataFrame, pd.Series, list[str]]:
    location = _labels_location(source, labels)
    texts = LABEL_TEXTS - {(source.target or "").lower()}
    tables = [*read_event_tables(location, texts)]
    notes = [note for table in tables for note in table.attrs.get(NOTES, ())]
    rows, target = labels_table(tables, location.url, source.target, source.time)
    if not source.drop_missing_target:
        need_targets(target, location.url)
    else:
        rows, target = rows[target.notna().to_numpy()], target.dropna()
    return rows.reset_index(drop=True), target.reset_index(drop=True), notes


def _labels_location(source: Source, labels: str) -> Location:
    named = Location.at(labels, source.gaps)
    if named.exists():
        return named
    below = Location.at(source.data, source.gaps).below(labels)
    if below.exists():
        return below
    raise BadInput(f"there is no file or folder {labels}, neither as given nor below {source.data}")


_HALF = 0.5
BUNDLED = ("breast_cancer", "diabetes", "digits", "iris", "wine")
"""Names accepted in `sklearn:NAME`; the column to predict is `target`."""


def bundled_table(name: str) -> pd.DataFrame:
    """Return a data set of scikit-learn: its features, and the column `target`.

    Raises:
        BadInput: If the data set has several targets.
        UnknownName: If the data set does not exist.
    """
    if name == "linnerud":
        raise BadInput("sklearn:linnerud has three targets, but a study predicts only one")
    if name not in BUNDLED:
        raise UnknownName("data set of scikit-learn", name, BUNDLED)
    return getattr(datasets, f"load_{name}")(as_frame=True).frame


_LOGGER = logging.getLogger(__name__)
_COHORT = "cohort:"
_BUNDLED = "sklearn:"


def read_source(source: Source) -> Dataset:
    """Read a data set, and check its values.

    Raises:
        BadInput: If the source cannot be used; the message contains a remedy.
        UnknownName: If the cohort, bundled data set or format does not exist.
    """
    if source.format is not None:
        FORMATS.named(source.format)
    if source.data.startswith(_COHORT):
        return _read_cohort(source)
    if source.data.startswith(FRAME):
        raise BadInput(
            f"{source.data} was a DataFrame in the memory of another process, and only its own "
            "studies have a copy; pass the DataFrame again, or save it and name the file"
        )
    if source.data.startswith(_BUNDLED):
        name = source.data.removeprefix(_BUNDLED)
        frame = bundled_table(name)
        return table_dataset(replace(source, target=source.target or "target"), name, frame)
    location = Location.at(source.data, source.gaps)
    found = recognize(Given(location, source.target, source.labels), source.format)
    if found.kind == "events":
        return read_events_source(source, found, location)
    location = replace(location, decimal=source.decimal_mark)
    frame = joined(found.frames(location, source.categorical))
    return replace(table_dataset(source, location.stem or "data", frame), format=found.name)


def read_features(
    data: str,
    labels: str | None,
    training: Dataset,
    chosen: str | None = None,
    gaps: tuple[str, ...] = GAPS,
) -> pd.DataFrame | EventRows:
    """Read rows to predict: a table, or the rows of `labels` with their events.

    Args:
        data: File or folder, in any format of the training data's kind.
        labels: Table of patients and prediction times, for events only; classes are not needed.
        training: Training data set.
        chosen: Name of the format; None to detect the format.
        gaps: Strings that count as missing.

    Raises:
        BadInput: If the data cannot be read.
    """
    if isinstance(training.X, pd.DataFrame):
        if labels is not None:
            raise BadInput("the model takes a table, but --labels is for events; omit --labels")
        if data.startswith(_BUNDLED):
            return bundled_table(data.removeprefix(_BUNDLED))
        reader = training.row_reader
        assert reader is not None  # noqa: S101 - the data is a table
        frame = read_frame(data, reader.texts, chosen, gaps)
        for note in frame.attrs[NOTES]:
            _LOGGER.warning(note)
        return frame
    if data.startswith(_COHORT):
        dataset = _read_cohort(Source(data))
        if isinstance(dataset.X, EventRows):
            return dataset.X
    location = Location.at(data, gaps)
    if not location.exists():
        raise BadInput(f"there is no file or folder {data}")
    if labels is None:
        raise BadInput(
            f"{data} holds events, so name the patients and times to predict with --labels FILE "
            "(columns patient and prediction time)"
        )
    found = recognize(Given(location, labels=labels), chosen)
    if found.kind == "table":
        raise BadInput(f"{data} is a table, but the model takes events; name a --format of events")
    rows, notes = read_event_rows(data, labels, found, location, training.X)
    for note in notes:
        _LOGGER.warning(note)
    return rows


def _read_cohort(source: Source) -> Dataset:
    if source.test is not None:
        raise BadInput(
            f"{source.data} is generated, so --test does not apply; hold out rows with --test-size"
        )
    _refuse_columns(source)
    name = source.data.removeprefix(_COHORT)
    cohort = generate(cohort_named(name))
    events, _ = events_table([cohort.events], source.data)
    rows, target = labels_table([cohort.labels], source.data, None, source.time)
    return events_dataset(source, f"cohort-{name.partition('?')[0]}", events, rows, target)


def label_faults(X: EventRows, target: pd.Series) -> pd.DataFrame:
    """Return implausible labels, once per fault.

    If most events are in the future, as in data with dates shifted to protect patients, labels in
    the future are not faults.

    Args:
        X: Events and the n rows of the labels.
        target: Class of each row, or number to predict, shape (n,), with rows numbered from 0.

    Returns:
        Columns subject_id, prediction_time, label and fault; the index contains row positions.
    """
    rows, patients = X.rows, X.rows["subject_id"].astype(object)
    times = rows["prediction_time"].to_numpy()
    is_empty, is_unknown = X.start == X.stop, np.zeros(len(rows), dtype=bool)
    if is_empty.any():
        is_unknown[is_empty] = ~patients[is_empty].isin(X.events["subject_id"].unique())
    is_repeated = rows.duplicated(keep=False).to_numpy()
    keys = [patients[is_repeated], rows["prediction_time"][is_repeated]]
    is_other = np.zeros(len(rows), dtype=bool)
    is_other[is_repeated] = target[is_repeated].groupby(keys).transform("nunique") > 1
    now = np.datetime64("now", "us")
    is_future = times > now
    if is_future.any() and (X.events["time"] > now).mean() > _HALF:
        is_future[:] = False
    found = {
        "of patients without any event": is_unknown,
        "without an event up to their time (apart from birth)": is_empty & ~is_unknown,
        "that contradict another label of their patient and time": is_other,
        "before the birth of their patient": times < _first_times(X, patients, "MEDS_BIRTH"),
        "after the death of their patient": times > _first_times(X, patients, "MEDS_DEATH"),
        "in the future": is_future,
    }
    labeled = rows.assign(label=target)
    parts = [labeled[is_faulty].assign(fault=fault) for fault, is_faulty in found.items()]
    return pd.concat(parts)


def _first_times(X: EventRows, patients: pd.Series, code: str) -> NDArray[np.datetime64]:
    """Return the time of the first event with this code, for each row's patient, shape (n,)."""
    is_code = np.array([name.split("//")[0] == code for name in X.codes], dtype=bool)
    events = X.events[is_code[X.events["code"].cat.codes.to_numpy()]]
    first = events["time"].groupby(events["subject_id"].astype(object)).min()
    return first.reindex(patients).to_numpy(dtype="datetime64[us]")
