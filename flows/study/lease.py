"""The lease of a study, held by one process at a time, and the clock of study time."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep

from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.waiting import Heartbeat
from prefect_tune.tasks.bad_input import BadInput

_BEAT_SECONDS = 5.0
"""Interval at which a session's time is recorded. A killed process loses at most one interval."""
_LOOK_SECONDS = 0.5
HANDOVER_SECONDS = 60.0
"""Longest wait of a resumed flow run for the former process to end."""


class StudyBusy(BadInput):
    """Another process runs the study."""


def study_lease(name: str) -> str:
    """Return the name of the lease that a process needs to run a study."""
    return f"study {name}"


@contextmanager
def locked_study(store: ArtifactStore, name: str) -> Iterator[None]:
    """Hold the lease of a study; raise `StudyBusy` if another process holds the lease."""
    if not store.leases.acquire(study_lease(name)):
        raise _busy(store, name)
    try:
        yield
    finally:
        store.leases.release(study_lease(name))


def is_being_run(store: ArtifactStore, name: str) -> bool:
    """Return whether a process is running a study."""
    holder = store.leases.holder(study_lease(name))
    return holder is not None and not holder.is_dead()


def check_not_busy(store: ArtifactStore, name: str) -> None:
    """Raise `StudyBusy` if a process runs a study."""
    if is_being_run(store, name):
        raise _busy(store, name)


def wait_until_free(store: ArtifactStore, name: str, seconds: float) -> None:
    """Wait until no process runs the study, but for at most `seconds`."""
    until = monotonic() + seconds
    while is_being_run(store, name) and monotonic() < until:
        sleep(_LOOK_SECONDS)


def _busy(store: ArtifactStore, name: str) -> StudyBusy:
    holder = store.leases.holder(study_lease(name))
    return StudyBusy(
        f"study {name!r} is being run by {holder or 'another process'}",
        remedy="wait for that run, end it, or choose another --study name",
    )


class StudyClock:
    """Clock that measures study time, starting from `spent_seconds` of earlier sessions."""

    def __init__(self, ledger: Ledger, study: str, spent_seconds: float) -> None:
        self._ledger, self._study, self.spent_seconds = ledger, study, spent_seconds
        self._started: float | None = None

    def seconds(self) -> float:
        """Return the study time so far in seconds, including earlier sessions."""
        return self.spent_seconds + self._elapsed()

    @contextmanager
    def running(self, since: float | None = None) -> Iterator[None]:
        """Count the time of the `with` block or, if given, since `since` (`time.monotonic`)."""
        session = self._ledger.start_session(self._study)
        self._started = monotonic() if since is None else since

        def note() -> None:
            self._ledger.beat(session, self._elapsed())

        heartbeat = Heartbeat("session", note, _BEAT_SECONDS, "study time could not be recorded")
        try:
            yield
        finally:
            heartbeat.stop()
            note()

    def _elapsed(self) -> float:
        return 0.0 if self._started is None else monotonic() - self._started
