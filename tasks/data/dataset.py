"""Data sets, imported once per study and stored under the digest of their content.

Workers, resumed studies and retries read only the imported copy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.keys import canonical_json, content_digest, dataset_record
from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.data.code_table import DESCRIPTIONS
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.notation import TRUTHS
from prefect_tune.tasks.data.row_reader import RowReader

_OPTIONAL = ("groups", "is_test", "times", "ids", "aside")
_STRATA = 10
_ROWS_PER_STRATUM = 20

Label = str | int | float | bool
"""A class as the user wrote it."""


def label_text(label: Label) -> str:
    """Return the same text for all spellings of a class: 1, 1.0, True, `TRUE` and `1` are equal."""
    number = TRUTHS.get(str(label), label)
    is_whole = isinstance(number, float) and number.is_integer()
    return str(int(number) if is_whole else number)


@dataclass(frozen=True)
class Dataset:
    """A table (a frame of numbers and categories) or patient events, with one label per row.

    Attributes:
        name: The user's name for the data set; not part of its content.
        kind: `table` or `events`.
        X: The rows: a frame of n rows, or the events of n patients.
        y: Positions in `classes`, or the numbers to predict, shape (n,).
        classes: The classes in order; empty if the target is a number.
        groups: Group number of each row, shape (n,); rows of a group stay together. None if each
            row stands alone.
        is_test: Whether each row was given as a test row, shape (n,); None if the split decides.
        aside: Columns of a table that are not features but define groups of a constraint, or None.
        reader: Reader of rows in the same way as these rows. None for events, and for tables whose
            columns are all plain numbers and categories.
        times: Time of each row, shape (n,), if folds look forward: datetime64 in UTC, or numbers
            without a unit. None for events, which have prediction times.
        ids: Hash of the group or key of each row, shape (n,), the same on every day; None unless
            needed.
        notes: Notes for the user on what was done to the input.
        format: Name of the input's format, see `formats.FORMATS`; empty if loaded from a store.
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
        assert (order[:-1] < order[1:]).all(), self.classes  # noqa: S101 - positions rest on it

    def __len__(self) -> int:
        return len(self.y)

    @property
    def learned_classes(self) -> NDArray[Any]:
        """The classes as models learn them, sorted; empty if the target is a number.

        Classifiers reject fractional numbers as classes, so they learn positions instead.
        """
        classes = np.array(self.classes)
        is_whole = classes.dtype.kind != "f" or bool((classes % 1 == 0).all())
        return classes if is_whole else np.arange(len(classes))

    @property
    def labels(self) -> NDArray[Any]:
        """The class of each row as models learn it, or the number to predict, shape (n,)."""
        return self.learned_classes[self.y] if self.classes else self.y

    @property
    def row_reader(self) -> RowReader | None:
        """Reader of rows in the same way as these rows; None for events."""
        if self.reader is not None or not isinstance(self.X, pd.DataFrame):
            return self.reader
        return RowReader.of(self.X)

    @property
    def texts(self) -> tuple[tuple[str, int], ...]:
        """Columns of texts, with their numbers of hashed words, 0 for categories."""
        columns = [] if self.row_reader is None else self.row_reader.columns
        return tuple((c.name, c.n_words) for c in columns if c.kind in {"text", "category"})

    @property
    def target(self) -> Literal["classes", "numbers"]:
        """Kind of the target: classes or numbers."""
        return "classes" if self.classes else "numbers"

    @cached_property
    def strata(self) -> NDArray[np.int32]:
        """Stratum of each row, for stratified parts: its class, or its tenth of the numbers."""
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
        """Return the features of some rows, in that order."""
        if isinstance(self.X, EventRows):
            return self.X.take(rows)
        return self.X.iloc[rows].reset_index(drop=True)

    @property
    def columns(self) -> pd.DataFrame | None:
        """The features of a table and the columns kept aside; None for events."""
        if not isinstance(self.X, pd.DataFrame):
            return None
        return self.X if self.aside is None else pd.concat([self.X, self.aside], axis=1)

    def digest(self) -> str:
        """Return the digest of the content, independent of its file; order counts."""
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
        for name, frame in frames.items():
            yield name.encode()
            yield from _frame_content(frame)


def import_dataset(dataset: Dataset, store: ArtifactStore) -> str:
    """Store a data set unless it is stored already, and return its digest.

    The digest contains neither descriptions of codes nor notations of numbers. A copy with other
    descriptions is rewritten. The reader of a copy reads the notations of all data sets with the
    same values.
    """
    digest, reader = dataset.digest(), dataset.row_reader
    record, records = dataset_record(digest), store.records
    about = {"name": dataset.name, "kind": dataset.kind, "classes": list(dataset.classes)}
    parts: dict[str, Any] = {"about": about, "y": dataset.y}
    for name in _OPTIONAL:
        if (values := getattr(dataset, name)) is not None:
            parts[name] = values
    parts |= dataset.X.parts() if isinstance(dataset.X, EventRows) else {"X": dataset.X}
    is_kept = records.is_whole(record)
    if is_kept and reader is not None:
        stored = load_dataset(store, digest).row_reader
        assert stored is not None  # noqa: S101 - equal content is a table too
        reader = stored.with_notations(reader)
        is_kept = reader.to_json() == stored.to_json()
    if reader is not None and not reader.is_plain:
        parts["reader"] = reader.to_json()
    if is_kept and (described := parts.get(DESCRIPTIONS)) is not None:
        is_kept = DESCRIPTIONS in records.parts(record) and canonical(described).equals(
            records.get(record, [DESCRIPTIONS])[DESCRIPTIONS]
        )
    if not is_kept:
        records.put(record, {name: canonical(part) for name, part in parts.items()}, mappable=True)
        load_dataset.cache_clear()
    return digest


@lru_cache(maxsize=2)
def load_dataset(store: ArtifactStore, digest: str) -> Dataset:
    """Load a data set by its digest, once per process; a user's processes share its arrays.

    Raises:
        RecordDamaged: If it is not in the store's records, or damaged.
    """
    parts: Mapping[str, Any] = store.records.get(dataset_record(digest))
    about = parts["about"]
    given: dict[str, Any] = {name: parts.get(name) for name in _OPTIONAL}
    return Dataset(
        name=about["name"],
        kind=about["kind"],
        X=parts["X"] if about["kind"] == "table" else EventRows.from_parts(parts),
        y=parts["y"],
        classes=tuple(about["classes"]),
        reader=RowReader.from_json(parts["reader"], parts["X"]) if "reader" in parts else None,
        **given,
    )


def _frame_content(frame: pd.DataFrame) -> Iterator[bytes | memoryview]:
    for name in frame.columns:
        column = frame[name]
        yield str(name).encode()
        if isinstance(column.dtype, pd.CategoricalDtype):
            yield "\0".join(column.cat.categories).encode()
            values = column.cat.codes.to_numpy().astype("<i4")
        else:
            values = np.ascontiguousarray(column.to_numpy())
        yield values.view(np.uint8).data
