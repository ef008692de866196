"""Decoded matrices of hot artifacts in the memory of one worker, least recently used goes first.

Only what cannot be changed is held: read-only arrays, and a few pickles as their checked bytes, of
which each reader makes a value of its own. An entry is named by its place, so what was
evicted from the store and made again is another one, and nothing stale is ever served.
"""

import threading
from contextlib import suppress
from operator import itemgetter
from typing import Any

from cachetools import LRUCache

DEFAULT_MEMORY_BYTES = 256 * 1000**2
"""Byte budget of a worker's memory tier."""


class MemoryTier:
    """Values by place and name, within a byte budget.

    Args:
        budget_bytes: Most that they may hold together; 0 turns it off.
    """

    def __init__(self, budget_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
        self._values: LRUCache[tuple[str, str], tuple[Any, int]] = LRUCache(
            budget_bytes, itemgetter(1)
        )
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """Bytes of all values together."""
        return int(self._values.currsize)

    def get(self, place: str, name: str) -> Any:
        """Return a value, or None."""
        with self._lock:
            return self._values.get((place, name), (None,))[0]

    def put(self, place: str, name: str, value: Any) -> None:
        """Hold a value if it is read-only and fits."""
        from prefect_tune.storage.matrices import frozen_bytes

        size_bytes = frozen_bytes(value)
        if size_bytes is not None:
            self._hold(place, name, value, size_bytes)

    def put_pickle(self, place: str, name: str, data: bytes | memoryview) -> None:
        """Hold the bytes of a pickle if they fit."""
        self._hold(place, name, data, len(data))

    def _hold(self, place: str, name: str, value: Any, size_bytes: int) -> None:
        with self._lock, suppress(ValueError):  # larger than the budget
            self._values[place, name] = value, size_bytes

    def drop(self, place: str) -> None:
        """Drop all values of a place."""
        with self._lock:
            for held in [held for held in self._values if held[0] == place]:
                del self._values[held]
