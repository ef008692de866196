"""Warnings for the user of a study, raised in a worker, a thread or the flow.

Because a run silences Python's log handlers, warnings go to listeners (`noticed_by`). If the
process has no listener yet, warnings are kept for the next listener.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

from prefect_tune.storage.masking import masked

_MOST_EARLY = 32
"""Number of latest warnings kept while the process has no listener."""

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning. A study shows only one warning for each pair of kind and subject.

    Attributes:
        kind: Kind of the warning, such as `outage`.
        text: The warning, as one line of text.
        subject: The file, address or error that the warning is about, if the kind is not enough.
        flow_run: Id of the flow run that gets the warning; empty for all flow runs of the process.
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
    """Warn the user through the log and all listeners, with passwords masked."""
    notice = Notice(kind, masked(text), masked(subject))
    _LOGGER.warning(notice.text)
    relay(notice)


def relay(notice: Notice) -> None:
    """Pass a warning to all listeners, or keep it for the next listener."""
    with _LOCK:
        listeners = tuple(_LISTENERS)
        if not listeners:
            _EARLY.append(notice)
    for listener in listeners:
        try:
            listener(notice)
        except Exception:  # a failed warning must not stop the work
            _LOGGER.debug("a warning could not be delivered", exc_info=True)


@contextmanager
def noticed_by(listener: Listener) -> Iterator[None]:
    """Pass all warnings of the process to a thread-safe `listener` during the `with` block."""
    with _LOCK:
        _LISTENERS.append(listener)
        early = tuple(_EARLY)
        _EARLY.clear()
    for notice in early:
        relay(notice)
    try:
        yield
    finally:
        with _LOCK:
            _LISTENERS.remove(listener)
