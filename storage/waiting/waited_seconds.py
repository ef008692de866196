"""Seconds that a trial waits for others, which are not its own; and signals that must wait.

A signal must not break off an open transaction, which would keep all others waiting. Python raises
what a signal handler raises between any two instructions of the main thread, so a handler asks
`is_put_off` first; its error is then raised after the body of `uninterrupted`.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic


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


class _State:
    """How deep the main thread is inside of `uninterrupted`, and what was put off meanwhile."""

    depth = 0
    put_off: Callable[[], None] | None = None


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put off what signals raise until the body has ended; in the main thread, where they do."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _State.depth += 1
    try:
        yield
    finally:
        _State.depth -= 1
        _raise_put_off()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let signals raise in the body, wherever it is: it may last long, and breaks off well."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    depth, _State.depth = _State.depth, 0
    try:
        _raise_put_off()
        yield
    finally:
        _State.depth = depth


def is_put_off(interrupt: Callable[[], None]) -> bool:
    """Return whether an interrupt, which raises when it is called, is called later.

    Args:
        interrupt: What to call then.
    """
    if _State.depth == 0:
        return False
    _State.put_off = interrupt
    return True


def _raise_put_off() -> None:
    if _State.depth == 0 and _State.put_off is not None:
        interrupt, _State.put_off = _State.put_off, None
        interrupt()
