"""Warnings for the user of a study, raised wherever they occur: in a worker, a thread, or the flow.

Handlers of Python's log are silent in a run, so a warning also goes to all listeners of the process
(`noticed_by`). Warnings that are raised before anybody listens are kept for the next listener.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

from prefect_tune.storage.masking import masked

_MOST_EARLY = 32
"""Warnings that are kept while nobody listens."""

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning.

    Attributes:
        kind: Kind of trouble, for instance `outage`; a study shows one warning per kind and
            subject.
        text: The warning, one line.
        subject: Thing that is in trouble; empty if the kind says enough.
        flow_run: Flow run that the warning belongs to; empty for all flow runs of the process.
    """

    kind: str
    text: str
    subject: str = ""
    flow_run: str = ""


Listener = Callable[[Notice], None]

_LISTENERS: list[Listener] = []
_EARLY: deque[Notice] = deque(maxlen=_MOST_EARLY)
_LOCK = Lock()


def warn(kind: str, text: str, subject: str = "") -> None:
    """Warn the user, in the log and by all listeners; `Notice` describes the arguments.

    Passwords of URLs are masked.
    """
    notice = Notice(kind, masked(text), masked(subject))
    _LOGGER.warning(notice.text)
    relay(notice)


def relay(notice: Notice) -> None:
    """Hand a warning to all listeners, or keep it for the next one."""
    with _LOCK:
        listeners = tuple(_LISTENERS)
        if not listeners:
            _EARLY.append(notice)
    for listener in listeners:
        _tell(listener, notice)


@contextmanager
def noticed_by(listener: Listener) -> Iterator[None]:
    """Hand the warnings of the whole process to a listener while the body runs.

    Args:
        listener: Takes a warning, in any thread.
    """
    with _LOCK:
        _LISTENERS.append(listener)
        early = tuple(_EARLY)
        _EARLY.clear()
    for notice in early:
        _tell(listener, notice)
    try:
        yield
    finally:
        with _LOCK:
            _LISTENERS.remove(listener)


def _tell(listener: Listener, notice: Notice) -> None:
    try:
        listener(notice)
    except Exception:  # the work that a warning is about must not fail by the warning
        _LOGGER.debug("a warning could not be handed on", exc_info=True)
