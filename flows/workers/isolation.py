"""Trials whose workers died together run alone once more: one of them may have done it.

Workers on this machine die together with the process that they are forked from. If a trial's code
kills that process, all trials under way lose their workers, each time they run beside that one. So
the search waits until no trial runs, and starts those again one by one, until each has ended.
"""

from threading import Lock
from time import monotonic

__all__ = ["Isolation"]

_TURN_SECONDS = 2.0
"""How long a search that may start a trial may take to do so, before another search may."""


class Isolation:
    """Trials of all searches that share workers; a trial is known by its search and its number."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: set[tuple[int, int]] = set()
        self._suspects: set[tuple[int, int]] = set()
        self._turn: tuple[int, float] = (0, 0.0)

    def admits(self, search: int) -> bool:
        """Return whether a search may start a trial now; it is to start one soon then."""
        with self._lock:
            if not self._suspects:
                return True
            holder, until = self._turn
            if self._running or (holder != search and monotonic() < until):
                return False
            self._turn = search, monotonic() + _TURN_SECONDS
            return True

    def start(self, search: int, number: int) -> bool:
        """Note that a trial runs; return whether it runs alone because of a common death."""
        with self._lock:
            self._running.add((search, number))
            return bool(self._suspects)

    def end(self, search: int, number: int, *, is_suspect: bool = False) -> None:
        """Note that a trial has ended.

        Args:
            search: Its search.
            number: Its number.
            is_suspect: Whether its worker died together with all others while some ran trials.
        """
        with self._lock:
            self._running.discard((search, number))
            if is_suspect:
                self._suspects.add((search, number))
            else:
                self._suspects.discard((search, number))

    def forget(self, search: int) -> None:
        """Forget a search that starts no more trials."""
        with self._lock:
            self._running = {trial for trial in self._running if trial[0] != search}
            self._suspects = {trial for trial in self._suspects if trial[0] != search}
