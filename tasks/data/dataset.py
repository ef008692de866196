"""Data sets, which a study imports once and stores under a digest of the content.

Workers, resumed studies and retries read only the stored copy.

A row has the same id in every later data set. The id is a hash of the row's group, key or patient.
Without group, key and patient, the id is a hash of the row's content and time as read by the
schema. The id does not depend on the order of rows, the file format, the type of numbers or other
rows.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.keys import canonical_json, content_digest, dataset_record
from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.code_table import DESCRIPTIONS
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.notation import TRUTHS, as_number
from prefect_tune.tasks.data.row_reader import RowReader, category_texts

_OPTIONAL = ("groups", "is_test", "times", "ids", "aside")
_STRATA = 10
_ROWS_PER_STRATUM = 20

Label = str | int | float | bool
"""A class label as the user wrote it."""


def label_text(label: Label) -> str:
    """Return the common string for all spellings of a class, such as 1, 1.0, True and `TRUE`."""
    number = TRUTHS.get(str(label), label)
    is_whole = isinstance(number, float) and number.is_integer()
    return str(int(number) if is_whole else number)


@dataclass(frozen=True)
class Dataset:
    """A table (a frame of numbers and categories) or patient events, with one label per row.

    Attributes:
        name: Name that the user gave to the data set, which does not affect the digest.
        kind: Kind of the data: `table` or `events`.
        X: Features: a frame of n rows, or the events of n patients.
        y: Targets: positions in `classes`, or numbers to predict, shape (n,).
        classes: Classes in order; empty if the target is a number.
        groups: Group number of each row, shape (n,), or None; rows of a group stay together.
        is_test: Whether each row was given as a test row, shape (n,); None if the split chooses
            test rows.
        aside: Columns of a table that define groups of a constraint but are not features; None if
            absent.
        reader: Reader for later rows; None for events, and for tables whose columns are all plain
            numbers and categories.
        times: Time of each row, shape (n,), if folds look forward in time: datetime64 in UTC, or
            unitless numbers; None for events, whose rows have prediction times.
        ids: Hash of each row's group or key, shape (n,), stable across data sets; None if not
            needed.
        notes: Notes for the user on how the input was changed.
        format: Name of the input's format (see `formats.FORMATS`); empty if loaded from a store.
    """

    name: str
    kind: str
    X: pd.DataFrame | EventRows
    y: NDArray[np.int32] | NDArray[np.float64]
    classes: tuple[Label, ...]
    groups: NDArray[np.int64] | None = None
    is_test: NDArray[np.bool_] | None = None
    aside: pd.DataFrame | None = None
    reader: RowReader | None = field(default=None, compare=False)
    times: NDArray[np.datetime64] | NDArray[np.float64] | None = None
    ids: NDArray[np.uint64] | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)
    format: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        order = np.array(self.classes)
        assert (order[:-1] < order[1:]).all(), self.classes  # noqa: S101 - positions need this

    def __len__(self) -> int:
        return len(self.y)

    @property
    def learned_classes(self) -> NDArray[Any]:
        """The sorted classes as used in training; empty if the target is a number.

        Classifiers reject fractional numbers as classes, so training uses positions of classes
        instead.
        """
        classes = np.array(self.classes)
        is_whole = classes.dtype.kind != "f" or bool((classes % 1 == 0).all())
        return classes if is_whole else np.arange(len(classes))

    @property
    def labels(self) -> NDArray[Any]:
        """The class of each row as used in training, or the number to predict, shape (n,)."""
        return self.learned_classes[self.y] if self.classes else self.y

    @property
    def row_reader(self) -> RowReader | None:
        """Reader for later rows; None for events."""
        if self.reader is not None or not isinstance(self.X, pd.DataFrame):
            return self.reader
        return RowReader.of(self.X)

    @property
    def texts(self) -> tuple[tuple[str, int], ...]:
        """String columns, each with its number of hashed words (0 for categories)."""
        columns = [] if self.row_reader is None else self.row_reader.columns
        return tuple((c.name, c.n_words) for c in columns if c.kind in {"text", "category"})

    @property
    def given_test_rows(self) -> NDArray[np.bool_]:
        """Whether each row was given as a test row, shape (n,)."""
        return np.zeros(len(self), dtype=bool) if self.is_test is None else self.is_test

    @property
    def target(self) -> Literal["classification", "regression"]:
        """Kind of the target: classes or numbers."""
        return "classification" if self.classes else "regression"

    @cached_property
    def strata(self) -> NDArray[np.int32]:
        """Stratum of each row for stratified splits: the class, or the decile of a number."""
        if self.classes:
            return self.y.astype(np.int32)
        n_strata = min(_STRATA, max(1, len(self) // _ROWS_PER_STRATUM))
        ranks = np.argsort(np.argsort(self.y, kind="stable"), kind="stable")
        return (ranks * n_strata // len(self)).astype(np.int32)

    @property
    def n_features(self) -> int:
        """Number of columns of a table, or of distinct event codes."""
        return self.X.shape[1]

    def rows(self, rows: NDArray[np.intp]) -> pd.DataFrame | EventRows:
        """Return the features of the given rows, in the given order."""
        if isinstance(self.X, EventRows):
            return self.X.take(rows)
        return self.X.iloc[rows].reset_index(drop=True)

    @property
    def columns(self) -> pd.DataFrame | None:
        """The features and other columns of a table; None for events."""
        if not isinstance(self.X, pd.DataFrame):
            return None
        return self.X if self.aside is None else pd.concat([self.X, self.aside], axis=1)

    def digest(self) -> str:
        """Return the digest of the content. The digest depends on the order of rows."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return content_digest(f"dataset {self.kind}", self._content())

    def _content(self) -> Iterator[bytes | memoryview]:
        for label in self.classes:
            yield f"{type(label).__name__} {label!r}".encode()
        yield self.y.astype("<i4" if self.classes else "<f8").tobytes()
        yield b"" if self.groups is None else self.groups.astype("<i8").tobytes()
        values_reader = self.reader and self.reader.with_notations(None)
        if values_reader is not None and not values_reader.is_plain:
            yield b"reader" + canonical_json(values_reader.to_json()).encode()
        if self.is_test is not None:
            yield b"test" + np.packbits(self.is_test).tobytes()
        if self.times is not None:
            yield f"times {self.times.dtype.kind}".encode() + self.times.view("<i8").tobytes()
        if self.ids is not None:
            yield b"ids" + self.ids.astype("<u8").tobytes()
        frames = {"X": self.X} if isinstance(self.X, pd.DataFrame) else self.X.frames()
        frames |= {} if self.aside is None else {"aside": self.aside}
        for frame_name, frame in frames.items():
            yield frame_name.encode()
            for name, column in frame.items():
                yield str(name).encode()
                if isinstance(column.dtype, pd.CategoricalDtype):
                    yield "\0".join(column.cat.categories).encode()
                    values = column.cat.codes.to_numpy().astype("<i4")
                else:
                    values = np.ascontiguousarray(column.to_numpy())
                yield values.view(np.uint8).data


def import_dataset(dataset: Dataset, store: ArtifactStore) -> str:
    """Store a data set unless already stored, and return its digest.

    Descriptions of codes and notations of numbers do not affect the digest. A stored copy with
    different descriptions is rewritten. The reader of the stored copy accepts the notations of all
    imported data sets with the same values.
    """
    digest, reader = dataset.digest(), dataset.row_reader
    record, records = dataset_record(digest), store.records
    about = {"name": dataset.name, "kind": dataset.kind, "classes": list(dataset.classes)}
    parts: dict[str, Any] = {name: getattr(dataset, name) for name in ("y", *_OPTIONAL)}
    parts |= dataset.X.parts() if isinstance(dataset.X, EventRows) else {"X": dataset.X}
    is_kept = records.is_whole(record)
    if is_kept and reader is not None:
        stored = load_dataset(store, digest).row_reader
        assert stored is not None  # noqa: S101 - equal digests: both are tables
        reader = stored.with_notations(reader)
        is_kept = reader.to_json() == stored.to_json()
    if is_kept and (described := parts.get(DESCRIPTIONS)) is not None:
        is_kept = DESCRIPTIONS in records.parts(record) and canonical(described).equals(
            records.get(record, [DESCRIPTIONS])[DESCRIPTIONS]
        )
    if not is_kept:
        parts |= {"about": about}
        if reader is not None and not reader.is_plain:
            parts["reader"] = reader.to_json()
        kept = {name: canonical(part) for name, part in parts.items() if part is not None}
        records.put(record, kept, mappable=True)
        load_dataset.cache_clear()
    return digest


@lru_cache(maxsize=2)
def load_dataset(store: ArtifactStore, digest: str) -> Dataset:
    """Load a data set by its digest, once per process; a user's processes share the arrays.

    Raises:
        RecordDamaged: If the record is missing or damaged.
    """
    parts = store.records.get(dataset_record(digest))
    about = parts["about"]
    given: dict[str, Any] = {name: parts.get(name) for name in _OPTIONAL}
    if "reader" in parts:
        given["reader"] = RowReader.from_json(parts["reader"], parts["X"])
    X = parts["X"] if about["kind"] == "table" else EventRows.from_parts(parts)
    classes = tuple(about["classes"])
    return Dataset(about["name"], about["kind"], X, parts["y"], classes, **given)


Hashes = NDArray[np.uint64]
"""Hashes, shape (n,)."""

_NOT_PLAIN = re.compile(r"^(-?\d+)\.0+$|^(\d{4}-\d{2}-\d{2})[T ]00:00(?::00(?:\.0+)?)?$")
"""Pattern of integers with decimals and of dates at midnight, so that all spellings of a value have
one id."""
_ADDED, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Constants of the generator SplitMix64 (Steele, Lea and Flood 2014)."""
_NO_VALUE = 0x7FF8000000000000
"""Bits of a missing number, also used for a missing category."""
SINGLE, SIX_DIGITS = 0, 6
"""Precisions of fractional numbers in hashes: 32-bit floats, and six significant digits."""
_SHARE = 0.1
"""Minimum fraction of rows found in both data sets with a column in the ids, relative to the
fraction without the column, for the column to be kept."""
_UNIQUE_SHARE, _FOUND_SHARE = 0.95, 0.2
"""Minimum fractions of rows with distinct ids, and of rows found in both data sets, for the
remaining columns to identify rows. Rows that are almost never equal within one data set are not
equal across two data sets by chance."""
_SAMPLED = 20_000
"""Number of rows to compare; values of one column choose the same sample in both data sets."""
_ATTEMPTS = 3
"""Number of columns tried as the first column of ids, because the first column is never dropped."""


def identity_columns(dataset: Dataset) -> tuple[str, ...]:
    """Return the columns that identify rows in later data; empty for groups, keys and patients."""
    is_named = dataset.groups is not None or dataset.ids is not None
    return () if is_named else common_columns(dataset, dataset)


def common_columns(one: Dataset, other: Dataset) -> tuple[str, ...]:
    """Return the features that identify rows and occur in both tables; empty for events.

    Dates contribute only their days, because the other features depend on whether any date has a
    time of day.
    """
    columns = [] if one.row_reader is None else one.row_reader.columns
    names = (n for c in columns for n in (c.features[:1] if c.kind == "date" else c.features))
    return tuple(name for name in names if name in set(_frame(other).columns))


def row_ids(dataset: Dataset, columns: Sequence[str] | None = None) -> Hashes:
    """Return the id of each row, shape (n,); raise `BadInput` if a column is missing.

    A data set with groups must have been read with `Source.keeps_ids`. Without groups, keys or
    patients, ids are hashes of the features in `columns` (default: all).
    """
    if isinstance(dataset.X, EventRows):
        return value_ids(dataset.X.rows["subject_id"])
    if dataset.ids is not None:
        return dataset.ids
    if dataset.groups is not None:
        raise ValueError(f"data set {dataset.name} was read without ids of its groups")
    return content_ids(dataset, columns or identity_columns(dataset))


def content_ids(dataset: Dataset, columns: Iterable[str], precision: int | None = SINGLE) -> Hashes:
    """Return a hash of the time and some features of each row of a table, shape (n,).

    `precision` is `SINGLE`, `SIX_DIGITS`, or None for exact numbers. Raises `BadInput` if a column
    is missing.
    """
    ids = np.zeros(len(dataset), dtype=np.uint64)
    if dataset.times is not None:
        ids = _mixed(np.ascontiguousarray(dataset.times).view(np.uint64))
    for name in columns:
        ids += column_hashes(dataset, name, precision)
    return _mixed(ids)


def column_hashes(dataset: Dataset, name: str, precision: int | None = SINGLE) -> Hashes:
    """Return a hash of one feature of each row, shape (n,); `content_ids` sums these hashes."""
    if name not in (X := _frame(dataset)):
        raise BadInput(
            f"{dataset.name} has no feature {name!r}, by which the series recognizes rows",
            remedy="restore the column with its former kind (numbers, categories or free text), or "
            "start another --series",
        )
    if name.endswith(".days"):  # 32 bits cannot distinguish times within a minute
        precision = None
    return _mixed(value_bits(X[name], precision) ^ np.uint64(_hash(name)))


def _frame(dataset: Dataset) -> pd.DataFrame:
    return dataset.X if isinstance(dataset.X, pd.DataFrame) else pd.DataFrame()


def settled_columns(before: Dataset, now: Dataset, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that identify rows and stay the same for known rows.

    Columns that differ in nearly all known rows are excluded. One example of an excluded column is
    a snapshot date. Columns are added to the id one by one, in decreasing order of the number of
    values. If adding a column leaves almost no rows common to both data sets, the column is
    dropped. If the remaining columns do not identify rows either, all columns stay.
    """
    if not columns:
        return ()
    all_ids = content_ids(now, columns)
    is_fresh = ~np.isin(all_ids, content_ids(before, columns))
    if 2 * is_fresh.sum() < min(len(now), len(before)):
        return tuple(columns)
    n_distinct = _frame(before)[list(columns)].iloc[:_SAMPLED].nunique()
    order = sorted(columns, key=lambda name: -n_distinct[name])
    n_parts = np.uint64(max(1, len(now) // _SAMPLED))
    for start in range(min(_ATTEMPTS, len(order))):
        first = order[start]
        is_old = column_hashes(before, first) % n_parts == 0
        is_new = is_fresh & (column_hashes(now, first) % n_parts == 0)
        kept, share, ids = list[str](), 1.0, (np.zeros(1, np.uint64), np.zeros(1, np.uint64))
        for name in order[start:] + order[:start]:
            old = ids[0] + column_hashes(before, name)[is_old]
            new = ids[1] + column_hashes(now, name)[is_new]
            n_values = [len(np.unique(one)) for one in (old, new)]
            found = len(np.intersect1d(old, new)) / max(1, min(n_values))
            if found >= _SHARE * share:
                kept, share, ids = [*kept, name], found, (old, new)
        n_ids = len(np.unique(all_ids[is_new]))
        is_identity = len(np.unique(ids[1])) >= _UNIQUE_SHARE * n_ids and share >= _FOUND_SHARE
        if is_identity and 2 * len(kept) >= len(columns):
            return tuple(name for name in columns if name in kept)
    return tuple(columns)


def value_ids(column: pd.Series) -> Hashes:
    """Return a hash of each group or patient, shape (n,); 7 equals 7.0 but not 07."""
    number, values = pd.factorize(category_texts(column))
    plain = [_NOT_PLAIN.sub(lambda found: found[1] or found[2], str(value)) for value in values]
    return np.array([_hash(text) for text in plain], dtype=np.uint64)[number]


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def value_bits(column: pd.Series, precision: int | None = SINGLE) -> Hashes:
    """Return bits that are equal for equal values, shape (n,)."""
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return _number_bits(column.to_numpy(dtype=np.float64), precision)
    texts = [str(category) for category in column.cat.categories]
    numbers = np.array([as_number(text) for text in texts], dtype=np.float64)
    of_texts = np.array([_hash(text) for text in texts], dtype=np.uint64)
    bits = np.where(np.isfinite(numbers), _number_bits(numbers, precision), of_texts)
    return np.append(bits, np.uint64(_NO_VALUE)).astype(np.uint64)[column.cat.codes.to_numpy()]


def _number_bits(numbers: NDArray[np.float64], precision: int | None) -> Hashes:
    if precision is not None:
        is_fraction = np.isfinite(numbers) & (numbers != np.trunc(numbers))
        numbers, fractions = numbers.copy(), numbers[is_fraction]
        with np.errstate(all="ignore"):
            if precision == SINGLE:
                rounded = fractions.astype(np.float32).astype(np.float64)
            else:
                scale = 10.0 ** (precision - 1 - np.floor(np.log10(np.abs(fractions))))
                rounded = np.round(fractions * scale) / scale
        is_kept = np.isfinite(rounded) & (rounded != 0)
        numbers[is_fraction] = np.where(is_kept, rounded, fractions)
    bits = (numbers + 0.0).view(np.uint64)  # adding 0.0 turns -0.0 into 0.0
    bits[np.isnan(numbers)] = _NO_VALUE
    return bits


def _mixed(bits: Hashes) -> Hashes:
    bits = bits + np.uint64(_ADDED)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(_FIRST)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(_SECOND)
    return bits ^ (bits >> np.uint64(31))


def labeled_ids(dataset: Dataset, precision: int | None) -> Hashes:
    """Return a hash of each row's features and label, shape (n,); see `content_ids`."""
    names = map(str, dataset.X.columns) if isinstance(dataset.X, pd.DataFrame) else ()
    return content_ids(dataset, names, precision) ^ value_bits(pd.Series(dataset.y), precision)
