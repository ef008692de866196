"""The lease of a study: one process at a time runs it."""

from collections.abc import Iterator
from contextlib import contextmanager

from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput

__all__ = ["StudyBusy", "check_not_busy", "held_study", "is_being_run", "study_lease"]


class StudyBusy(BadInput):
    """Another process runs the study."""


def study_lease(name: str) -> str:
    """Return the name of the lease that whoever runs a study holds."""
    return f"study {name}"


@contextmanager
def held_study(store: ArtifactStore, name: str) -> Iterator[None]:
    """Keep other processes from running a study in the body.

    Raises:
        StudyBusy: If another process runs it.
    """
    if not store.leases.acquire(study_lease(name)):
        raise _busy(store, name)
    try:
        yield
    finally:
        store.leases.release(study_lease(name))


def is_being_run(store: ArtifactStore, name: str) -> bool:
    """Return whether a process that is still alive runs a study."""
    holder = store.leases.holder(study_lease(name))
    return holder is not None and not holder.is_dead()


def check_not_busy(store: ArtifactStore, name: str) -> None:
    """Check that no process runs a study.

    Raises:
        StudyBusy: If one does.
    """
    if is_being_run(store, name):
        raise _busy(store, name)


def _busy(store: ArtifactStore, name: str) -> StudyBusy:
    holder = store.leases.holder(study_lease(name))
    return StudyBusy(
        f"study {name!r} is being run by {holder or 'another process'}",
        remedy="wait for it, end it, or choose another --study name",
    )
