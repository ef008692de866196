"""The seconds that a piece of work waits for others, which are not its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic

__all__ = ["Begun", "Waits", "begin", "waiting", "waits_counted"]


@dataclass
class Waits:
    """How long the body of `waits_counted` has waited.

    Attributes:
        changed: Called when a wait begins and when it ends.
        seconds: The waits that have ended.
        since: When the present one began, by `monotonic`; None outside of waits.
    """

    changed: Callable[["Waits"], None]
    seconds: float = 0.0
    since: float | None = None


_WAITS: ContextVar[Waits | None] = ContextVar("waits", default=None)


@contextmanager
def waits_counted(changed: Callable[[Waits], None] = lambda _: None) -> Iterator[None]:
    """Count the waits of the body.

    Args:
        changed: Called, with what is counted, when a wait begins and when it ends.
    """
    token = _WAITS.set(Waits(changed))
    try:
        yield
    finally:
        _WAITS.reset(token)


@dataclass(frozen=True, slots=True)
class Begun:
    """The moment at which a piece of work began.

    Attributes:
        at: By `monotonic`.
        waited: Seconds waited before.
    """

    at: float
    waited: float

    def own_seconds(self) -> float:
        """Return the seconds since then that were not waits."""
        waits = _WAITS.get()
        waited = 0.0 if waits is None else waits.seconds - self.waited
        return monotonic() - self.at - waited


def begin() -> Begun:
    """Return this moment."""
    waits = _WAITS.get()
    return Begun(monotonic(), 0.0 if waits is None else waits.seconds)


@contextmanager
def waiting(since: Begun | None = None) -> Iterator[None]:
    """Count the time of the body as waiting; a wait inside of another one counts once.

    Args:
        since: An earlier moment, from which on all was in vain.
    """
    waits = _WAITS.get()
    if waits is None or waits.since is not None:
        yield
        return
    since = since or begin()
    waits.seconds, waits.since = since.waited, since.at
    waits.changed(waits)
    try:
        yield
    finally:
        waits.seconds += monotonic() - since.at
        waits.since = None
        waits.changed(waits)
