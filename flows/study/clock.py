"""The time that a study has taken, counted over all its sessions."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic

from prefect_tune.storage.ledger import Ledger

__all__ = ["StudyClock"]

_BEAT_SECONDS = 5.0
"""At most this much of a session's time is forgotten when its process is killed."""


class StudyClock:
    """Counts seconds while it runs, and tells the ledger every few of them.

    Args:
        ledger: Where sessions are kept.
        study: Name of the study.
        spent_seconds: Seconds that its earlier sessions took.
    """

    def __init__(self, ledger: Ledger, study: str, spent_seconds: float) -> None:
        self._ledger, self._study, self._spent = ledger, study, spent_seconds
        self._started: float | None = None

    def seconds(self) -> float:
        """Return the seconds spent so far, earlier sessions included."""
        return self._spent + self._elapsed()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time of the body."""
        session = self._ledger.start_session(self._study)
        self._started = monotonic()
        stop = Event()
        beat = Thread(target=self._beat, args=(session, stop), daemon=True, name="session")
        beat.start()
        try:
            yield
        finally:
            stop.set()
            beat.join()
            self._ledger.beat(session, self._elapsed())

    def _elapsed(self) -> float:
        return 0.0 if self._started is None else monotonic() - self._started

    def _beat(self, session: int, stop: Event) -> None:
        while not stop.wait(_BEAT_SECONDS):
            self._ledger.beat(session, self._elapsed())
