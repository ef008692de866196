"""A thread that repeats an action every few seconds, also after outages."""

import threading
from collections.abc import Callable

from prefect_tune.storage.notices import warn

_MOST_RETRY_SECONDS = 1.0
"""Pause after a failed beat; it is short, as a lease may be about to expire."""


class Heartbeat:
    """Does something every few seconds, in a thread of its own, until it is stopped.

    Args:
        name: Name of the thread.
        beat: The action. Any error it raises is an outage: it is reported once, then retried.
        seconds: Seconds between two beats.
        outage: Beginning of the warning about an outage.
    """

    def __init__(self, name: str, beat: Callable[[], None], seconds: float, outage: str) -> None:
        self._beat, self._seconds, self._outage = beat, seconds, outage
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=name)

    def start(self) -> None:
        """Begin; the first beat comes after the first pause."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for a beat under way."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        pause, is_out = self._seconds, False
        while not self._stop.wait(pause):
            try:
                self._beat()
            except Exception as error:  # the thread must outlive it
                if not is_out:
                    warn(
                        "heartbeat", f"{self._outage}, and it is tried again: {error}", self._outage
                    )
                pause, is_out = min(self._seconds, _MOST_RETRY_SECONDS), True
            else:
                pause, is_out = self._seconds, False
