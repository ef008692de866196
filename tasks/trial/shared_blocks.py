"""Blocks of patient events that all trials share: artifacts by partition of the patients.

A block depends only on the events of its patients, so it is computed once for all folds and
configurations, and for unchanged patients also once for all versions of the data.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from time import perf_counter, time
from typing import Any, Self
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from prefect_tune.storage.artifacts import ArtifactStore, Made
from prefect_tune.storage.index import Entry
from prefect_tune.storage.keys import prefix_key
from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.catalogue.event_blocks import (
    PARENTS,
    Block,
    Matrix,
    Vocabulary,
    make_blocks,
)
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.fitting.versions import library_of
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.partitions import (
    KeptPartition,
    Partition,
    Patients,
    Version,
    digest_of,
    from_parts,
    keep,
    partitions_from,
    partitions_of,
    to_parts,
)

LOOSE_BYTES = 1 << 26
"""Size limit of the blocks of loose patients in memory, in bytes."""
_MAKER = f"{make_blocks.__module__}.{make_blocks.__qualname__}"
STEP = "event blocks"
"""Step under which the cache lists blocks."""
PARTITIONS = "event partitions"
"""Step under which the cache lists the partitions of a version of the data."""
LEAST_KEPT_EVENTS = 1 << 17
"""Data with fewer events keep no partitions, because their blocks are quick to make."""
_MOST_CANDIDATES = 64
"""Versions of data, newest first, among which the most similar one is found."""
_SKETCH = 64
"""Patients whose digests are compared to find the most similar version."""
_PIN_SECONDS = 3600.0
"""Pins expire after this time if a worker died."""
_LEAST_SHARE = 12
"""Fits on less than 1/12 of the training rows, as for small subsets, share no blocks."""
_NO_FOLD = -3
"""Fold number of an artifact of all rows; real folds have other numbers."""
PART = "block"
"""Name of the part of an artifact that contains the block."""


class SharedBlocks:
    """Blocks of a data set for the features of one fold, from the cache or computed for all."""

    def __init__(
        self, store: ArtifactStore, X: EventRows, context: StudyContext, n_training: int
    ) -> None:
        self._store, self._X, self._context, self._n_training = store, X, context, n_training
        self._entries: dict[_Place, tuple[Entry, Version]] = {}
        self._held: dict[_Place, Matrix] = {}
        self._owner = f"blocks {uuid4().hex}"

    def blocks(self, X: EventRows, wanted: Sequence[Block]) -> Mapping[Block, Matrix] | None:
        """Return a matrix with the n rows of X for each block, read on access.

        Returns None if X has less than a twelfth of the training rows or does not come from the
        data set. If a block is missing, also returns None below half of the training rows.
        """
        if _LEAST_SHARE * len(X) < self._n_training or not self._has(X):
            return None
        places = [
            (number, block)
            for number, partition in enumerate(self._partitions)
            for block in wanted
            if not partition.is_loose
        ]
        new = [place for place in places if place not in self._held and place not in self._entries]
        self._find(new)
        missing = [place for place in new if place not in self._entries]
        if missing and 2 * len(X) < self._n_training:
            return None
        found = [self._entries[place][0].key for place in new if place in self._entries]
        keys = {place: prefix_key(self._own_lineage(*place)) for place in missing}
        keys_needed = [*found, *keys.values()]
        self._store.index.pins.set(keys_needed, self._owner, _PIN_SECONDS, released=[])
        for number, some in groupby(missing, itemgetter(0)):
            self._make(number, {place: keys[place] for place in some})
        for partition in self._partitions:
            if partition.is_loose:
                _make_loose(partition, wanted)
        return _Rows(self, X.positions, wanted)

    def release(self) -> None:
        """Release the pins; until then no block is computed twice."""
        self._store.index.pins.release(self._owner)

    def of_rows(self, block: Block, rows: NDArray[np.intp]) -> Matrix:
        """Return a block of some rows by their positions in the data set.

        The memory tier keeps blocks of all rows, for all folds and configurations.
        """
        memory, layout = self._store.memory, self._layout
        whole = memory.get(layout.name, str(block))
        if whole is None:
            pieces = [self._of_partition(i, block) for i in range(len(layout.partitions))]
            whole = _joined(pieces)
            memory.put(layout.name, str(block), whole)
            if memory.get(layout.name, str(block)) is whole:  # else it is too large
                for place, (entry, _) in self._entries.items():
                    if place[1] == block:
                        memory.drop(entry.place)
        return whole[layout.place[rows]]

    @property
    def _partitions(self) -> Sequence[Partition]:
        return self._layout.partitions

    @cached_property
    def _layout(self) -> "_Layout":
        X = self._X
        made_of = X.start, X.events, X.code_table, X.rows, self._store
        known: tuple[tuple[Any, ...], _Layout] | None = X.of_events.get("partitions")
        if known is None or any(a is not b for a, b in zip(known[0], made_of, strict=True)):
            is_small = (X.stop - X.start).sum() < LEAST_KEPT_EVENTS
            made = partitions_of(X) if is_small else self._kept_partitions()
            known = X.of_events["partitions"] = made_of, _Layout.of(made)
        return known[1]

    def _kept_partitions(self) -> list[Partition]:
        """Return the partitions that all workers use, and that later versions of the data keep."""
        patients, found = Patients.of(self._X), list[KeptPartition]()
        lineage = self._lineage({"patients": digest_of(patients.digests)})
        sketch = [f"{one:016x}" for one in np.sort(patients.digests[:, 0])[:_SKETCH].tolist()]

        def make() -> Made:
            started = perf_counter()
            found[:] = keep(patients, self._most_similar(set(sketch)))
            return Made(to_parts(found), {"sketch": sketch}, perf_counter() - started)

        entry = self._entry(prefix_key(lineage), PARTITIONS, f"{len(patients)} patients")
        entry, made = self._store.get_or_make(entry, lineage, make)
        if made is None:
            read = self._store.read(entry, list(entry.parts))
            if read is None:
                make()
            else:
                found[:] = from_parts(read)
        return partitions_from(patients, found)

    def _most_similar(self, sketch: set[str]) -> list[KeptPartition]:
        """Return the partitions of the version of the data with the most patients in common."""
        versions = self._store.index.select(step=PARTITIONS, limit=_MOST_CANDIDATES)
        shared = np.array([len(sketch.intersection(one.summary["sketch"])) for one in versions])
        for i in np.argsort(-shared, kind="stable").tolist():
            if shared[i] and (read := self._store.read(versions[i], list(versions[i].parts))):
                return from_parts(read)
        return []

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

    def _find(self, places: Sequence["_Place"]) -> None:
        """Find stored blocks, of the last version of a partition first."""
        keys = {
            place: {
                prefix_key(lineage): version
                for version in self._partitions[place[0]].versions
                if (lineage := self._block_lineage(*place, version)) is not None
            }
            for place in places
        }
        known = self._store.index.entries([key for of_place in keys.values() for key in of_place])
        for place, of_place in keys.items():
            for key, version in of_place.items():
                if key in known and known[key].is_present:
                    self._entries[place] = known[key], version
                    self._store.index.count_hit(known[key])
                    break

    def _make(self, number: int, keys: Mapping["_Place", str]) -> None:
        """Make blocks of a partition in one pass; the first worker to need them computes them."""
        partition, index, since = self._partitions[number], self._store.index, time()

        def is_over() -> bool | None:
            known = index.entries(list(keys.values()))
            found = [known[key] for key in keys.values() if key in known]
            # Blocks that the cache has refused meanwhile are computed by each worker for itself.
            is_decided = all(e.is_present or e.created >= since for e in found)
            return True if is_decided and len(found) == len(keys) else None

        with self._store.leases.turn(f"blocks {partition.digest}", lambda _: None, is_over):
            self._find(list(keys))
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
                    entry = self._entry(keys[place], STEP, str(block))
                    made = Made({PART: matrix}, {}, seconds, mappable=True)
                    entry = self._store.write(entry, made, self._own_lineage(*place))
                    if entry.is_present:
                        self._entries[place] = entry, partition.versions[0]
                    else:
                        self._held[place] = matrix
                started = perf_counter()

    def _of_partition(self, number: int, block: Block) -> Matrix:
        """Return a block of the partition's rows, in its order, with the data set's columns."""
        partition, place = self._partitions[number], (number, block)
        held, version = self._held, partition.versions[0]
        if partition.is_loose:
            _make_loose(partition, [block])  # unless it is held
            matrix = partition.held[block]
        elif place in self._entries and place not in held:
            entry, version = self._entries[place]
            read = self._store.read(entry, [PART])
            if read is None:  # damaged, or evicted in the meantime
                version = partition.versions[0]
                *_, made = make_blocks(partition.X, [block], Vocabulary.of(partition.X))
                held[place] = _local_columns(made[block], partition, block)
            matrix = held[place] if read is None else read[PART]
        else:
            matrix = held[place]
        if version.rows is not None:
            matrix = matrix[version.rows]
        if block.is_dense:
            return matrix
        columns = partition.columns(block.level, version)
        width = len(Vocabulary.of(self._X).level(block.level).names)
        parts = (matrix.data, columns[matrix.indices], matrix.indptr)
        return sparse.csr_array(parts, shape=(matrix.shape[0], width))

    def _own_lineage(self, number: int, block: Block) -> dict[str, Any]:
        lineage = self._block_lineage(number, block, self._partitions[number].versions[0])
        assert lineage is not None  # noqa: S101 - the data set has all codes of its last version
        return lineage

    def _block_lineage(self, number: int, block: Block, version: Version) -> dict[str, Any] | None:
        """Return the lineage of a block; None if no block of the version can serve the data."""
        lineage = self._lineage({"events": version.digest, "block": block.lineage()})
        if block.level == PARENTS:
            lineage["parents"] = self._partitions[number].parents_digest(version)
            return None if lineage["parents"] is None else lineage
        return lineage

    def _lineage(self, made_of: Mapping[str, Any]) -> dict[str, Any]:
        area = self._context.cache_area
        library = library_of(_MAKER, lambda: None)
        return {**made_of, "library": library, **({"cache_area": area} if area else {})}

    def _entry(self, key: str, step: str, algorithm: str) -> Entry:
        return Entry(
            key=key,
            parent=None,
            study=self._context.study,
            step=step,
            algorithm=algorithm,
            fold=_NO_FOLD,
            cost_seconds=0.0,
            summary={},
        )


_Place = tuple[int, Block]
"""Partition number and block."""


@dataclass(frozen=True)
class _Layout:
    """All rows by partition; `place` is the place of each row if partitions follow each other."""

    partitions: Sequence[Partition]
    place: NDArray[np.intp]
    name: str

    @classmethod
    def of(cls, partitions: Sequence[Partition]) -> Self:
        order = np.concatenate([one.positions for one in partitions])
        return cls(partitions, np.argsort(order), uuid4().hex)


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


def _joined(pieces: Sequence[Matrix]) -> Matrix:
    """Return a block of all rows, read-only so that the memory tier takes it."""
    whole: Matrix
    if isinstance(pieces[0], np.ndarray):
        whole = np.concatenate(pieces)
        parts = [whole]
    else:
        whole = sparse.csr_array(sparse.vstack(pieces, format="csr"))
        parts = [whole.data, whole.indices, whole.indptr]
    for part in parts:
        part.flags.writeable = False
    return whole


def _n_bytes(matrix: Matrix) -> int:
    if isinstance(matrix, np.ndarray):
        return matrix.nbytes
    return int(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes)


def _make_loose(partition: Partition, wanted: Sequence[Block]) -> None:
    """Make blocks of patients too few to store; the process keeps them up to `LOOSE_BYTES`."""
    if sum(map(_n_bytes, partition.held.values())) > LOOSE_BYTES:
        partition.held.clear()
    missing = [block for block in wanted if block not in partition.held]
    for of_level in make_blocks(partition.X, missing, Vocabulary.of(partition.X)):
        for block, whole in of_level.items():
            partition.held[block] = _local_columns(whole, partition, block)


def _local_columns(matrix: Matrix, partition: Partition, block: Block) -> Matrix:
    """Return a block in canonical form with the columns of its partition only."""
    if block.is_dense:
        return canonical(matrix)
    columns = partition.columns(block.level, partition.versions[0])
    place = np.full(matrix.shape[1], -1, dtype=np.int32)
    place[columns] = np.arange(len(columns))
    parts = (matrix.data, place[matrix.indices], matrix.indptr)
    return canonical(sparse.csr_array(parts, shape=(matrix.shape[0], len(columns))))
