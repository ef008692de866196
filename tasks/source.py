"""From what the user names to a data set: tables, MEDS folders, event tables, synthetic cohorts."""

import io
import posixpath
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from prefect_tune.optimizers.naming import UnknownName
from prefect_tune.tasks.bad_input import BadInput, need_column
from prefect_tune.tasks.cohort import cohort_named, generate
from prefect_tune.tasks.dataset import Dataset
from prefect_tune.tasks.events import EventRows, events_table, labels_table
from prefect_tune.tasks.table import classes_of, features_of

__all__ = ["FORMATS", "Source", "read_features", "read_source"]

FORMATS = ("table", "events", "meds")
"""What `--format` can say."""
_COHORT = "cohort:"


@dataclass(frozen=True, slots=True)
class Source:
    """What to read and how, as the options of the same names say.

    Attributes:
        data: A file, a MEDS folder, or `cohort:NAME?option=value`.
        target: Column of the class.
        labels: File or folder of labels, for events.
        format: One of `FORMATS`; None finds out.
        drop: Columns to leave out.
        categorical: Columns to take as categories.
        drop_missing_target: Whether to leave out rows without a class.
    """

    data: str
    target: str | None = None
    labels: str | None = None
    format: str | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    drop_missing_target: bool = False


def read_source(source: Source) -> Dataset:
    """Read and check a data set.

    Raises:
        BadInput: If it cannot be used; says what is wrong and what would be right.
        UnknownName: If there is no such cohort or format.
    """
    name = source.data.rstrip("/").rsplit("/", 1)[-1].split(".")[0] or "data"
    if source.data.startswith(_COHORT):
        return _read_cohort(source)
    kind = _kind(source)
    if kind == "table":
        return _read_table(source, name)
    _check_meds(source, kind)
    if source.labels is None:
        raise BadInput(
            f"{source.data} holds events, so the classes come from a table of their own: name it "
            "with --labels FILE or FOLDER (columns patient, prediction time and class)"
        )
    where = _labels_path(source.data, source.labels)
    rows, target = labels_table(_tables(where), where, source.target)
    events = _read_events(source.data)
    if source.drop_missing_target:
        rows, target = rows[target.notna().to_numpy()], target.dropna()
    return _events_dataset(name, events, rows.reset_index(drop=True), target, where)


def read_features(data: str, labels: str | None, training: Dataset) -> pd.DataFrame | EventRows:
    """Rows to predict: a table as it is in its file, or events with the rows of their labels.

    Args:
        data: A file or MEDS folder of the same form as the training data.
        labels: For events: patients and prediction times; classes are not needed.
        training: The training data.

    Raises:
        BadInput: If the data cannot be read.
    """
    if isinstance(training.X, pd.DataFrame):
        texts = [str(c) for c in training.X.select_dtypes("category")]
        return pd.concat(_tables(data, texts), ignore_index=True)
    if data.startswith(_COHORT):
        dataset = _read_cohort(Source(data))
        if isinstance(dataset.X, EventRows):
            return dataset.X
    if labels is None:
        raise BadInput(
            f"{data} holds events: name the patients and times to predict with --labels FILE "
            "(columns patient and prediction time)"
        )
    where = _labels_path(data, labels)
    table = pd.concat(_tables(where), ignore_index=True)
    rows, _ = labels_table([table.assign(label=0)], where, "label")
    return EventRows.build(_read_events(data), rows)


def _read_cohort(source: Source) -> Dataset:
    name = source.data.removeprefix(_COHORT)
    cohort = generate(cohort_named(name))
    events = events_table([cohort.events], source.data)
    rows, target = labels_table([cohort.labels], source.data, None)
    return _events_dataset(f"cohort-{name.partition('?')[0]}", events, rows, target, source.data)


def _read_table(source: Source, name: str) -> Dataset:
    frame = pd.concat(_tables(source.data), ignore_index=True)
    if source.target is None:
        shown = ", ".join(map(str, frame.columns[-20:]))
        raise BadInput(
            f"{source.data} is a table, so say which column to predict with --target COLUMN. "
            f"Its columns: {shown}"
        )
    need_column(source.target, frame.columns, source.data)
    notes = []
    if source.drop_missing_target:
        missing = int(frame[source.target].isna().sum())
        frame = frame.dropna(subset=[source.target]).reset_index(drop=True)
        notes += [f"{missing} rows without {source.target} are left out"] if missing else []
    y, classes = classes_of(frame[source.target], source.data)
    features = frame.drop(columns=[source.target])
    X, more = features_of(features, source.drop, source.categorical, source.data)
    return Dataset(name, "table", X, y, classes, notes=(*notes, *more))


def _events_dataset(
    name: str, events: pd.DataFrame, rows: pd.DataFrame, target: pd.Series, where: str
) -> Dataset:
    y, classes = classes_of(target.reset_index(drop=True), where)
    X = EventRows.build(events, rows)
    groups, _ = pd.factorize(X.rows["subject_id"])
    has_repeats = len(np.unique(groups)) < len(groups)
    return Dataset(
        name, "events", X, y, classes, groups=groups.astype(np.int64) if has_repeats else None
    )


def _kind(source: Source) -> str:
    if source.format is not None:
        if source.format not in FORMATS:
            raise UnknownName("format", source.format, FORMATS)
        return source.format
    filesystem, path = _located(source.data)
    if filesystem.isdir(path):
        return "meds"
    if source.labels is not None:
        return "events"
    return "table"


def _check_meds(source: Source, kind: str) -> None:
    filesystem, path = _located(source.data)
    if filesystem.isdir(path) and not filesystem.isdir(posixpath.join(path, "data")):
        raise BadInput(
            f"{source.data} is a folder without data/, so it is no MEDS data set: its events "
            "would be in data/**/*.parquet"
        )
    if kind == "meds" and not filesystem.isdir(path):
        raise BadInput(f"{source.data} is a file; a MEDS data set is a folder with data/ in it")


def _read_events(data: str) -> pd.DataFrame:
    filesystem, path = _located(data)
    if filesystem.isdir(path):
        data = filesystem.unstrip_protocol(posixpath.join(path, "data"))
    return events_table(_tables(data), data)


def _labels_path(data: str, labels: str) -> str:
    """The labels as named, else below the data's folder."""
    filesystem, path = _located(labels)
    if filesystem.exists(path):
        return labels
    below = posixpath.join(data, labels)
    filesystem, path = _located(below)
    if filesystem.exists(path):
        return below
    raise BadInput(f"there are no labels at {labels}, nor at {below}")


def _tables(url: str, texts: Sequence[str] = ()) -> Iterator[pd.DataFrame]:
    """The table of a file, or those of all Parquet files below a folder, in order of names.

    Columns named in `texts` are read as texts where the file does not say what they are.
    """
    filesystem, path = _located(url)
    if not filesystem.exists(path):
        raise BadInput(f"there is no file or folder {url}")
    if filesystem.isdir(path):
        paths = sorted(filesystem.glob(posixpath.join(path, "**", "*.parquet")))
        if not paths:
            raise BadInput(f"there is no Parquet file below {url}")
    else:
        paths = [path]
    for file in paths:
        yield _table(filesystem, file, url, texts)


def _located(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    try:
        filesystem, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise BadInput(f"{url} cannot be read: {error}") from error
    return filesystem, path


def _table(filesystem: Any, path: str, url: str, texts: Sequence[str] = ()) -> pd.DataFrame:
    lowered = path.lower()
    try:
        if lowered.endswith((".parquet", ".pq")):
            with filesystem.open(path, "rb") as file:
                frame: pd.DataFrame | None = pq.read_table(file).to_pandas()
        elif lowered.endswith((".csv", ".csv.gz")):
            with filesystem.open(path, "rb", compression="infer") as file:
                text = file.read()
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)
                frame = pd.read_csv(
                    io.BytesIO(text),
                    index_col=False,
                    low_memory=False,
                    dtype=dict.fromkeys(texts, str),
                )
            # pandas renames columns of equal names; their own names tell.
            names = pd.read_csv(io.BytesIO(text), header=None, nrows=1, dtype=str).iloc[0]
            frame.columns = names.fillna(pd.Series(frame.columns))
        else:
            frame = None
    except pd.errors.ParserWarning as error:
        raise BadInput(
            f"{url} has rows with more fields than its first line has names; give each column one"
        ) from error
    except Exception as error:
        raise BadInput(f"{url} cannot be read: {error}") from error
    if frame is None:
        raise BadInput(f"{url} is no file that is read: use .csv, .csv.gz or .parquet")
    frame.columns = frame.columns.astype(str)
    doubled = frame.columns[frame.columns.duplicated()]
    if len(doubled):
        raise BadInput(f"{url} has two columns called {doubled[0]!r}; rename one")
    return frame
