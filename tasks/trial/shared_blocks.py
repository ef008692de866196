"""Cached blocks of patient events, shared by all folds and configurations of a data set."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from time import perf_counter
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from prefect_tune.storage.artifacts import ArtifactStore, Made
from prefect_tune.storage.index import Entry
from prefect_tune.storage.keys import prefix_key
from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.catalogue.event_windows import (
    Block,
    Matrix,
    Vocabulary,
    joined,
    make_blocks,
)
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.user_code import library_of

_MAKER = f"{make_blocks.__module__}.{make_blocks.__qualname__}"
STEP = "event blocks"
"""Name of the step under which blocks are listed in the cache."""
_PIN_SECONDS = 3600.0
"""Time after which pins expire if their worker dies."""
_LEAST_SHARE = 12
"""Inverse of the minimum fraction of training rows for shared blocks; fits on small subsets do not
use shared blocks."""
_NO_FOLD = -3
"""Fold number of blocks, which contain all rows; folds have other numbers."""
PART = "block"
"""Name of the stored part that contains the block."""


class SharedBlocks:
    """Source of blocks for one fold, from cached or new blocks of the whole data set."""

    def __init__(
        self, store: ArtifactStore, X: EventRows, context: StudyContext, n_training: int
    ) -> None:
        self._store, self._X, self._context, self._n_training = store, X, context, n_training
        self._entries: dict[Block, Entry] = {}
        self._refused: dict[Block, Matrix] = {}
        self._owner = f"blocks {uuid4().hex}"

    def blocks(self, X: EventRows, wanted: Sequence[Block]) -> Mapping[Block, Matrix] | None:
        """Return a matrix with the n rows of X for each block; each matrix is read on access.

        Returns None if X has less than a twelfth of the training rows or does not come from the
        data set. Also returns None if a block is not cached yet and X has less than half of the
        training rows.
        """
        if _LEAST_SHARE * len(X) < self._n_training or not self._has(X):
            return None
        new = [b for b in wanted if b not in self._entries and b not in self._refused]
        keys = {block: prefix_key(self._lineage(block)) for block in new}
        self._find(keys)
        missing = {block: key for block, key in keys.items() if block not in self._entries}
        if missing and 2 * len(X) < self._n_training:
            return None
        if keys:
            pins = self._store.index.pins
            pins.set([*keys.values()], self._owner, _PIN_SECONDS, released=[])
        if missing:
            self._make(missing)
        return _Rows(self, X.positions)

    def release(self) -> None:
        """Release the pins that protect blocks from eviction."""
        self._store.index.pins.release(self._owner)

    def of_rows(self, block: Block, rows: NDArray[np.intp]) -> Matrix:
        """Return a block for the given rows, identified by position in the data set."""
        if block not in self._refused:
            read = self._store.read(self._entries[block], [PART])
            if read is not None:
                return read[PART][rows]
            # The block is damaged or was evicted in the meantime.
            made = joined(make_blocks(self._X, [block], Vocabulary.of(self._X)))
            self._refused |= made
        return self._refused[block][rows]

    def _has(self, X: EventRows) -> bool:
        """Return whether X contains unchanged rows and events of the data set."""
        given = self._X
        return (
            X.events is given.events
            and X.code_table is given.code_table
            and np.array_equal(X.start, given.start[X.positions])
            and np.array_equal(X.stop, given.stop[X.positions])
            and X.rows.equals(given.rows.iloc[X.positions].reset_index(drop=True))
        )

    def _find(self, keys: Mapping[Block, str]) -> None:
        """Look up cached blocks by key."""
        known = self._store.index.entries([*keys.values()])
        for block, key in keys.items():
            if key in known and known[key].is_present:
                self._entries[block] = known[key]
                self._store.index.count_hit(known[key])

    def _make(self, keys: Mapping[Block, str]) -> None:
        """Compute the blocks that no other worker has computed in the meantime."""
        lease = f"blocks {self._context.problem.dataset}"
        with self._store.leases.turn(lease, lambda _: None):
            self._find(keys)
            left = [block for block in keys if block not in self._entries]
            for level in sorted({block.level for block in left}):
                blocks = [block for block in left if block.level == level]
                started = perf_counter()
                made = {**joined(make_blocks(self._X, blocks, Vocabulary.of(self._X)))}
                seconds = (perf_counter() - started) / len(blocks)
                for block in blocks:
                    matrix = canonical(made.pop(block))
                    self._store.index.usage.count_miss(STEP)
                    entry = self._store.write(
                        Entry(
                            key=keys[block],
                            parent=None,
                            study=self._context.study,
                            step=STEP,
                            algorithm=str(block),
                            fold=_NO_FOLD,
                        ),
                        Made({PART: matrix}, {}, seconds, mappable=True),
                        self._lineage(block),
                    )
                    if entry.is_present:
                        self._entries[block] = entry
                    else:
                        self._refused[block] = matrix

    def _lineage(self, block: Block) -> dict[str, Any]:
        area = self._context.cache_area
        return {
            "dataset": self._context.problem.dataset,
            "block": asdict(block),
            "library": library_of(_MAKER, lambda: None),
            **({"cache_area": area} if area else {}),
        }


class _Rows(dict[Block, Matrix]):
    """Blocks for given rows, read on access because all blocks together may be large."""

    def __init__(self, shared: SharedBlocks, rows: NDArray[np.intp]) -> None:
        super().__init__()
        self._shared, self._rows = shared, rows

    def __missing__(self, block: Block) -> Matrix:
        return self._shared.of_rows(block, self._rows)
