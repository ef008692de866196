"""A buffer of usage counts in memory, written together.

They are written with the next change of the index, or a second later at the latest, so a hit
costs no transaction of its own.
"""

import threading
from collections.abc import Callable
from time import monotonic, time

from prefect_tune.storage.cache.entry import Entry
from prefect_tune.storage.cache.usage import UsageCounts
from prefect_tune.storage.notices import warn

__all__ = ["UsageBuffer"]

_FLUSH_SECONDS = 1.0
"""Uses are written at most this long after they happened: LRU order is right to within it."""


class UsageBuffer:
    """Counts how this process uses artifacts, in any thread, until the counts are written.

    Args:
        flush: Writes what is `taken`.
    """

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._collected = UsageCounts()
        self._flushed = monotonic()
        self._latest = 0.0
        self._writing = threading.local()
        self._timer: threading.Timer | None = None

    def count_hit(self, entry: Entry) -> None:
        """Note that an artifact was served, and what that saved."""
        with self._lock:
            at = self.now()
            _, hits = self._collected.used.get(entry.key, (0.0, 0))
            self._collected.used[entry.key] = (at, hits + 1)
            self._collected.count(entry.step, "hits", 1)
            self._collected.count(entry.step, "seconds_saved", entry.cost_seconds)
        self._flush_soon()

    def count_load(self, entry: Entry, read_bytes: int, seconds: float) -> None:
        """Note how long reading some of an artifact took."""
        whole = seconds * entry.size_bytes / max(read_bytes, 1)
        with self._lock:
            self._collected.time(entry, "load_seconds", whole)
            self._collected.count(entry.step, "seconds_saved", -seconds)
        self._flush_soon()

    def count_miss(self, step: str) -> None:
        """Note that an artifact had to be made."""
        with self._lock:
            self._collected.count(step, "misses", 1)
        self._flush_soon()

    def count_make(self, entry: Entry) -> None:
        """Note how long making an artifact of that size took."""
        with self._lock:
            self._collected.time(entry, "make_seconds", entry.cost_seconds)
        self._flush_soon()

    def now(self) -> float:
        """Return a time later than any before: a clock set back must not reverse the order."""
        self._latest = max(time(), self._latest + 1e-6)
        return self._latest

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        with self._lock:
            return self._collected.is_empty

    def taken(self) -> UsageCounts:
        """Return what was collected, for this thread to write and then `settle`."""
        with self._lock:
            collected, self._collected = self._collected, UsageCounts()
            self._flushed = monotonic()
        self._writing.collected = collected
        return collected

    def settle(self, *, is_written: bool) -> None:
        """Forget what this thread took, or collect it again if it could not be written."""
        collected: UsageCounts | None = getattr(self._writing, "collected", None)
        self._writing.collected = None
        if collected is not None and not is_written:
            with self._lock:
                self._collected.add(collected)

    def stop(self) -> None:
        """Flush for the last time; when it returns, no other thread is writing any more."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
        self._flush_quietly()

    def _flush_soon(self) -> None:
        """Flush within a second, also when this process does something else meanwhile."""
        if monotonic() - self._flushed > _FLUSH_SECONDS:
            self._flush_quietly()
            return
        with self._lock:
            if self._timer is None:
                self._timer = threading.Timer(_FLUSH_SECONDS, self._flush_quietly)
                self._timer.daemon = True
                self._timer.start()

    def _flush_quietly(self) -> None:
        with self._lock:
            self._timer = None  # what is counted from now on needs another one
        with self._flushing:
            try:
                self._flush()
            except Exception as error:  # counting must not end what is counted
                warn("usage", f"uses of the cache are not counted: {error}")
