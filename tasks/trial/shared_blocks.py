"""Blocks of patient events that all trials share: artifacts by partition of the patients.

A block depends only on the events of its patients, so it is computed once for all folds and
configurations. Partitions are by patient id, so artifacts survive changes in other partitions.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from time import perf_counter, time
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from prefect_tune.storage.cache.entry import Entry
from prefect_tune.storage.key import content_digest, prefix_key
from prefect_tune.storage.matrices import canonical
from prefect_tune.storage.store import ArtifactStore, Made
from prefect_tune.tasks.catalogue.event_blocks import (
    PARENTS,
    Block,
    Matrix,
    Vocabulary,
    make_blocks,
)
from prefect_tune.tasks.data.events import EventRows, positions
from prefect_tune.tasks.fitting.versions import library_of
from prefect_tune.tasks.problem import StudyContext

EVENTS_PER_PARTITION = 1 << 21
"""Events per partition; partitions have between half of this and this on average."""
_MOST_PARTS = 4
"""Partitions end after this multiple of `EVENTS_PER_PARTITION`, whatever the patient ids."""
RECENT_BYTES = 1 << 26
"""Size limit of recently used blocks in memory, in bytes."""
_MAKER = f"{make_blocks.__module__}.{make_blocks.__qualname__}"
STEP = "event blocks"
"""Step under which the cache lists blocks."""
_PIN_SECONDS = 3600.0
"""Pins expire after this time if a worker died."""
_LEAST_SHARE = 12
"""Fits on less than 1/12 of the training rows, as for small subsets, share no blocks."""
_NO_FOLD = -3
"""Fold number of an artifact of all rows; real folds have other numbers."""
PART = "block"
"""Name of the part of an artifact that contains the block."""


@dataclass(frozen=True)
class Partition:
    """Some patients with all rows, in order of patient and time; positions are in the data set."""

    X: EventRows
    positions: NDArray[np.intp]
    _columns: dict[int, NDArray[np.int32]] = field(default_factory=dict, repr=False)

    @cached_property
    def codes(self) -> NDArray[np.intp]:
        """Codes that occur, as sorted positions in the data set's vocabulary."""
        return np.flatnonzero(np.bincount(self._code, minlength=len(self.X.codes)))

    @cached_property
    def digest(self) -> str:
        """Digest of everything its blocks depend on, independent of other patients."""
        start, stop = self._patients
        ends = np.cumsum(stop - start)
        patient = np.searchsorted(start, self.X.start)
        n_events = self.X.stop - self.X.start
        vocabulary = Vocabulary.of(self.X)
        names = [vocabulary.codes[i] for i in self.codes.tolist()]
        parts = [
            json.dumps(names).encode(),
            np.searchsorted(self.codes, self._code).astype("<i4").tobytes(),
            self.X.events["time"].to_numpy()[self._events].astype("<i8").tobytes(),
            self.X.events["value"].to_numpy()[self._events].astype("<f8").tobytes(),
            ends.astype("<i8").tobytes(),
            patient.astype("<i8").tobytes(),
            n_events.astype("<i8").tobytes(),
            self.X.rows["prediction_time"].to_numpy().astype("<i8").tobytes(),
        ]
        return content_digest("events of a partition", parts)

    def columns(self, level: int) -> NDArray[np.int32]:
        """Return the names of its codes at a level, as positions in the data set's vocabulary."""
        if level not in self._columns:
            found = Vocabulary.of(self.X).level(level)
            start, stop = found.offsets[self.codes], found.offsets[self.codes + 1]
            self._columns[level] = np.unique(found.columns[positions(start, stop)])
        return self._columns[level]

    @cached_property
    def parents_digest(self) -> str:
        """Digest of the parents of its codes that have columns; they depend on all codes."""
        level = Vocabulary.of(self.X).level(PARENTS)
        parents = [level.names_of(i) for i in self.codes.tolist()]
        return content_digest("parents of codes", [json.dumps(parents).encode()])

    @property
    def _patients(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First event of each patient, and one past the last event that any row may see."""
        start, patient = np.unique(self.X.start, return_inverse=True)
        stop = np.zeros_like(start)
        np.maximum.at(stop, patient, self.X.stop)
        return start, stop

    @property
    def _events(self) -> NDArray[np.int64]:
        return positions(*self._patients)

    @property
    def _code(self) -> NDArray[np.integer[Any]]:
        return self.X.events["code"].cat.codes.to_numpy()[self._events]


def partitions_of(X: EventRows) -> Sequence[Partition]:
    """Split all rows by patient, so that a patient added or removed changes only one partition."""
    made_of = X.start, X.events, X.code_table, X.rows
    known: tuple[tuple[Any, ...], Sequence[Partition]] | None = X.of_events.get("partitions")
    if known is None or any(a is not b for a, b in zip(known[0], made_of, strict=True)):
        known = X.of_events["partitions"] = made_of, list(_split(X))
    return known[1]


def _split(X: EventRows) -> Iterator[Partition]:
    patients, patient = np.unique(X.start, return_inverse=True)
    ids = X.events["subject_id"].iloc[patients]
    hashes = pd.util.hash_pandas_object(ids.astype(str), index=False).to_numpy()
    n_events = np.bincount(patient, X.stop - X.start)  # events count once per row that uses them
    n_patients = 2 ** max(0, int(np.log2(EVENTS_PER_PARTITION / max(1.0, n_events.mean()))))
    is_last = hashes % np.uint64(n_patients) == 0
    number = np.cumsum(is_last) - is_last
    before = np.cumsum(n_events) - n_events
    within = before - before[np.searchsorted(number, number)]
    part = within // (_MOST_PARTS * EVENTS_PER_PARTITION)
    is_first = np.diff(number, prepend=-1) + np.abs(np.diff(part, prepend=0)) > 0
    of_row = np.cumsum(is_first)[patient]
    order = np.lexsort((X.stop, X.rows["prediction_time"].to_numpy(), X.start))
    for one in np.unique(of_row):
        chosen = order[of_row[order] == one]
        yield Partition(X.take(chosen), chosen)


class SharedBlocks:
    """Blocks of a data set for the features of one fold, from the cache or computed for all."""

    def __init__(
        self, store: ArtifactStore, X: EventRows, context: StudyContext, n_training: int
    ) -> None:
        self._store, self._X, self._context, self._n_training = store, X, context, n_training
        self._entries: dict[_Place, Entry] = {}
        self._held: dict[_Place, Matrix] = {}
        self._recent = np.empty(0, np.intp), dict[Block, Matrix]()
        self._owner = f"blocks {uuid4().hex}"

    def blocks(self, X: EventRows, wanted: Sequence[Block]) -> Mapping[Block, Matrix] | None:
        """Return a matrix with the n rows of X for each block, read on access.

        Returns None if X has less than a twelfth of the training rows or does not come from the
        data set. If a block is missing, also returns None below half of the training rows.
        """
        if _LEAST_SHARE * len(X) < self._n_training or not self._has(X):
            return None
        lineages = {
            (number, block): self._lineage(partition, block)
            for number, partition in enumerate(self._partitions)
            for block in wanted
            if (number, block) not in self._held
        }
        keys = {place: prefix_key(lineage) for place, lineage in lineages.items()}
        self._store.index.pins.change([*keys.values()], [], self._owner, _PIN_SECONDS)
        self._find({place: key for place, key in keys.items() if place not in self._entries})
        missing = [place for place in keys if place not in self._entries]
        if missing and 2 * len(X) < self._n_training:
            return None
        for number, places in groupby(missing, itemgetter(0)):
            self._make(number, {place: keys[place] for place in places}, lineages)
        return _Rows(self, X.positions, wanted)

    def release(self) -> None:
        """Release the pins; until then no block is computed twice."""
        self._store.index.pins.release(self._owner)

    def of_rows(self, block: Block, rows: NDArray[np.intp]) -> Matrix:
        """Return a block of some rows by their positions in the data set.

        The last blocks, up to `RECENT_BYTES`, are kept for transforming after a fit.
        """
        if self._recent[0] is not rows:
            self._recent = rows, {}
        recent = self._recent[1]
        if block not in recent:
            made = self._of_rows(block, rows)
            if sum(map(_n_bytes, recent.values())) + _n_bytes(made) > RECENT_BYTES:
                return made
            recent[block] = made
        return recent[block]

    def _of_rows(self, block: Block, rows: NDArray[np.intp]) -> Matrix:
        partition, place = self._places
        of_rows, place = partition[rows], place[rows]
        pieces = []
        for number in range(len(self._partitions)):
            chosen = place[of_rows == number]
            if len(chosen):
                pieces.append(self._of_partition(number, block)[chosen])
        if len(pieces) == 1:
            return pieces[0]
        back = np.empty(len(rows), dtype=np.intp)
        back[np.argsort(of_rows, kind="stable")] = np.arange(len(rows))
        if isinstance(pieces[0], np.ndarray):
            return np.concatenate(pieces)[back]
        return sparse.csr_array(sparse.vstack(pieces, format="csr"))[back]

    @cached_property
    def _partitions(self) -> Sequence[Partition]:
        return partitions_of(self._X)

    @cached_property
    def _places(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Partition of each row of the data set, and the row's place in the partition."""
        partition, place = np.empty((2, len(self._X)), dtype=np.intp)
        for number, one in enumerate(self._partitions):
            partition[one.positions] = number
            place[one.positions] = np.arange(len(one.positions))
        return partition, place

    def _has(self, X: EventRows) -> bool:
        """Return whether the rows have the same events as in the data set."""
        times = self._X.rows["prediction_time"].to_numpy()
        same = X.events is self._X.events and X.code_table is self._X.code_table
        return (
            same
            and np.array_equal(X.start, self._X.start[X.positions])
            and np.array_equal(X.stop, self._X.stop[X.positions])
            and np.array_equal(X.rows["prediction_time"].to_numpy(), times[X.positions])
        )

    def _find(self, keys: Mapping["_Place", str]) -> None:
        known = self._store.index.entries(list(keys.values()))
        for place, key in keys.items():
            if key in known and known[key].is_present:
                self._entries[place] = known[key]
                self._store.index.usage.count_hit(known[key])

    def _make(
        self,
        number: int,
        keys: Mapping["_Place", str],
        lineages: Mapping["_Place", Mapping[str, Any]],
    ) -> None:
        """Make blocks of a partition in one pass; the first worker to need them computes them."""
        partition, index, since = self._partitions[number], self._store.index, time()

        def is_over() -> bool | None:
            known = index.entries(list(keys.values()))
            found = [known[key] for key in keys.values() if key in known]
            # Blocks that the cache has refused meanwhile are computed by each worker for itself.
            is_decided = all(e.is_present or e.created >= since for e in found)
            return True if is_decided and len(found) == len(keys) else None

        with self._store.leases.turn(f"blocks {partition.digest}", lambda _: None, is_over):
            self._find(keys)
            left = [place for place in keys if place not in self._entries]
            if not left:
                return
            started = perf_counter()
            blocks = [block for _, block in left]
            for of_level in make_blocks(partition.X, blocks, Vocabulary.of(partition.X)):
                seconds = (perf_counter() - started) / max(len(of_level), 1)
                for block in list(of_level):
                    place, whole = (number, block), of_level.pop(block)
                    matrix = _local_columns(whole, partition, block)
                    index.usage.count_miss(STEP)
                    entry = self._store.write(
                        self._entry(keys[place], block), Made({PART: matrix}, {}, seconds),
                        lineages[place],
                    )  # fmt: skip
                    if entry.is_present:
                        self._entries[place] = entry
                    else:
                        self._held[place] = matrix
                started = perf_counter()

    def _of_partition(self, number: int, block: Block) -> Matrix:
        partition, place = self._partitions[number], (number, block)
        if place in self._held:
            matrix = self._held[place]
        elif read := self._store.read(self._entries[place], [PART]):
            matrix = read[PART]
        else:  # damaged, or evicted in the meantime
            *_, made = make_blocks(partition.X, [block], Vocabulary.of(partition.X))
            matrix = self._held[place] = _local_columns(made[block], partition, block)
        if block.is_dense:
            return matrix
        columns = partition.columns(block.level)
        width = len(Vocabulary.of(self._X).level(block.level).names)
        parts = (matrix.data, columns[matrix.indices], matrix.indptr)
        return sparse.csr_array(parts, shape=(matrix.shape[0], width))

    def _lineage(self, partition: Partition, block: Block) -> dict[str, Any]:
        area = self._context.cache_area
        return {
            "events": partition.digest,
            "block": block.lineage(),
            **({"parents": partition.parents_digest} if block.level == PARENTS else {}),
            "library": library_of(_MAKER, lambda: None),
            **({"cache_area": area} if area else {}),
        }

    def _entry(self, key: str, block: Block) -> Entry:
        return Entry(
            key=key,
            parent=None,
            study=self._context.study,
            step=STEP,
            algorithm=str(block),
            fold=_NO_FOLD,
            cost_seconds=0.0,
            summary={},
        )


_Place = tuple[int, Block]
"""Partition number and block."""


@dataclass(frozen=True)
class _Rows(Mapping[Block, Matrix]):
    """Blocks of some rows, read on access because all of them may be large."""

    shared: SharedBlocks
    rows: NDArray[np.intp]
    wanted: Sequence[Block]

    def __getitem__(self, block: Block) -> Matrix:
        if block not in self.wanted:
            raise KeyError(block)
        return self.shared.of_rows(block, self.rows)

    def __iter__(self) -> Iterator[Block]:
        return iter(self.wanted)

    def __len__(self) -> int:
        return len(self.wanted)


def _n_bytes(matrix: Matrix) -> int:
    if isinstance(matrix, np.ndarray):
        return matrix.nbytes
    return int(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes)


def _local_columns(matrix: Matrix, partition: Partition, block: Block) -> Matrix:
    """Return a block in canonical form with the columns of its partition only."""
    if block.is_dense:
        return canonical(matrix)
    columns = partition.columns(block.level)
    place = np.full(matrix.shape[1], -1, dtype=np.int32)
    place[columns] = np.arange(len(columns))
    parts = (matrix.data, place[matrix.indices], matrix.indptr)
    return canonical(sparse.csr_array(parts, shape=(matrix.shape[0], len(columns))))
