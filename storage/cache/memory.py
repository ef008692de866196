"""Decoded matrices of hot artifacts in the memory of one worker, least recently used goes first.

Only what cannot be changed is held: read-only arrays, and a few pickles as their checked bytes, of
which each reader makes a value of its own. An entry is named by its place, so what was
evicted from the store and made again is another one, and nothing stale is ever served.
"""

import threading
from collections import OrderedDict
from typing import Any

DEFAULT_MEMORY_BYTES = 256 * 1000**2
"""Byte budget of a worker's memory tier."""


class MemoryTier:
    """Values by place and name, within a byte budget.

    Args:
        budget_bytes: Most that they may hold together; 0 turns it off.
    """

    def __init__(self, budget_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
        self.budget_bytes = budget_bytes
        self.size_bytes = 0
        self._values: OrderedDict[tuple[str, str], tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, place: str, name: str) -> Any:
        """Return a value, or None."""
        with self._lock:
            held = self._values.get((place, name))
            if held is None:
                return None
            self._values.move_to_end((place, name))
            return held[0]

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
        if size_bytes > self.budget_bytes:
            return
        with self._lock:
            if (former := self._values.pop((place, name), None)) is not None:
                self.size_bytes -= former[1]
            self._values[place, name] = (value, size_bytes)
            self.size_bytes += size_bytes
            while self.size_bytes > self.budget_bytes:
                _, (_, freed) = self._values.popitem(last=False)
                self.size_bytes -= freed

    def drop(self, place: str) -> None:
        """Drop all values of a place."""
        with self._lock:
            for held in [held for held in self._values if held[0] == place]:
                self.size_bytes -= self._values.pop(held)[1]
