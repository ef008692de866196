"""Trials whose workers died together are rerun one at a time: one of them may be the cause.

Local workers die together with their fork server. If the code of a trial kills the fork server,
all running trials lose their workers, and would do so again beside that trial. The search therefore
waits until no trial is running, and reruns these trials one by one, until each has ended.
"""

from threading import Lock
from time import monotonic

__all__ = ["Isolation"]

_TURN_SECONDS = 2.0
"""Time that a search has to start a trial before another search gets the turn."""


class Isolation:
    """Trials of all searches that share workers, identified by search and trial number."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: set[tuple[int, int]] = set()
        self._suspects: set[tuple[int, int]] = set()
        self._turn: tuple[int, float] = (0, 0.0)

    def admits(self, search: int) -> bool:
        """Return whether a search may start a trial now, which it should then do at once."""
        with self._lock:
            if not self._suspects:
                return True
            holder, until = self._turn
            if self._running or (holder != search and monotonic() < until):
                return False
            self._turn = search, monotonic() + _TURN_SECONDS
            return True

    def start(self, search: int, number: int) -> bool:
        """Note that a trial has started; return whether it runs alone as a suspect."""
        with self._lock:
            self._running.add((search, number))
            return bool(self._suspects)

    def end(self, search: int, number: int, *, is_suspect: bool = False) -> None:
        """Note that a trial has ended.

        Args:
            search: Its search.
            number: Its number.
            is_suspect: Whether its worker died with the fork server while other trials ran.
        """
        with self._lock:
            self._running.discard((search, number))
            if is_suspect:
                self._suspects.add((search, number))
            else:
                self._suspects.discard((search, number))

    def forget(self, search: int) -> None:
        """Forget the trials of a search that starts no more of them."""
        with self._lock:
            self._running = {trial for trial in self._running if trial[0] != search}
            self._suspects = {trial for trial in self._suspects if trial[0] != search}
