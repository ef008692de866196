"""Outages, waited out: what a trial works with may be away for a while, and that is not its doing.

One policy for databases, buckets and folders: try again after random pauses that grow to some
seconds, for five minutes at most.
"""

import os
from collections.abc import Callable
from time import sleep
from typing import TypeVar

from prefect_tune.storage.notices import warn
from prefect_tune.storage.privacy.masking import masked
from prefect_tune.storage.waiting.uninterrupted import interruptible
from prefect_tune.storage.waiting.waited_seconds import begin, waiting

__all__ = ["OUTAGE_VARIABLE", "outage_seconds", "through_outage"]

OUTAGE_VARIABLE = "PREFECT_TUNE_OUTAGE_SECONDS"
"""Environment variable of the longest outage that is waited out, for the flow and every worker."""
_OUTAGE_SECONDS = 300.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0

_WAITED_OUT = "it was tried again for as long as an outage may last"

Result = TypeVar("Result")


def outage_seconds() -> float:
    """Return how long an outage is waited out at most."""
    return float(os.environ.get(OUTAGE_VARIABLE) or _OUTAGE_SECONDS)


def through_outage(
    call: Callable[[], Result], is_outage: Callable[[BaseException], bool], what: str = ""
) -> Result:
    """Call, and call again while an outage lasts; what was in vain counts as waiting.

    Args:
        call: What to do; doing it twice must be as good as once.
        is_outage: Whether an error is one.
        what: Address of what is called; a study warns once of each.

    Raises:
        Exception: The last error, if the outage lasts too long; any other error at once, and so one
            that was waited out inside of the call.
    """

    def is_waited_out(error: BaseException) -> bool:
        return is_outage(error) and not _was_waited_out(error)

    begun = begin()
    try:
        return call()
    except Exception as error:
        if not is_waited_out(error):
            raise
        why = masked(str(error).split("\n", 1)[0])
        warn("outage", f"waiting at most {outage_seconds():g} s: {why}", masked(what))
    from tenacity import (  # noqa: PLC0415 - only when something is away
        Retrying,
        retry_if_exception,
        stop_after_delay,
        wait_random_exponential,
    )

    def pause(seconds: float) -> None:
        with waiting(begun), interruptible():
            sleep(seconds)

    def again() -> Result:
        nonlocal begun
        begun = begin()
        return call()

    pause(_FIRST_PAUSE_SECONDS)
    try:
        return Retrying(
            retry=retry_if_exception(is_waited_out),
            wait=wait_random_exponential(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS),
            stop=stop_after_delay(outage_seconds()),
            sleep=pause,
            reraise=True,
        )(again)
    except Exception as error:
        if is_waited_out(error):
            error.add_note(_WAITED_OUT)
        raise


def _was_waited_out(error: BaseException | None) -> bool:
    """Return whether an error, or one that it comes from, has outlasted a wait."""
    while error is not None:
        if _WAITED_OUT in getattr(error, "__notes__", ()):
            return True
        error = error.__cause__
    return False
