"""Signals may not break off everything halfway: an open transaction would keep all others waiting.

Python raises what a handler of signals raises between any two instructions of the main thread. A
handler that asks `is_put_off` first raises it when what must not be broken off is done.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["interruptible", "is_put_off", "uninterrupted"]


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
