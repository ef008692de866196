"""The time that a study has taken, counted over all its sessions."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.waiting.heartbeat import Heartbeat

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

        def note() -> None:
            self._ledger.beat(session, self._elapsed())

        heartbeat = Heartbeat("session", note, _BEAT_SECONDS, "the study's time is not noted")
        heartbeat.start()
        try:
            yield
        finally:
            heartbeat.stop()
            note()

    def _elapsed(self) -> float:
        return 0.0 if self._started is None else monotonic() - self._started
