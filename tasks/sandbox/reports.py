"""Reports of a call that runs in a sandbox; outside a sandbox, reports go nowhere.

Messages are plain values, so that worker and sandbox need nothing else of each other.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

from prefect_tune.optimizers.trials.outcome import StepCost
from prefect_tune.storage.notices import Notice
from prefect_tune.storage.waiting import Waits

LOST = 70
"""Exit code of a sandbox whose connection was closed, by its worker or by the call."""


@dataclass(frozen=True, slots=True)
class StepBegun:
    """A step of a path begins; `is_served` tells whether the cache has it in all folds."""

    step: str
    algorithm: str
    is_served: bool


@dataclass(frozen=True, slots=True)
class StepDone:
    """The step has run in all folds, or failed with a problem."""

    keys: tuple[str, ...] = ()
    n_cached: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class FoldReached:
    """The current step and fold, and the costs of all finished steps and folds."""

    step: str
    fold: int
    costs: tuple[StepCost, ...]


@dataclass(frozen=True, slots=True)
class Loading:
    """Data and libraries are being loaded, which is no time of the call."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Data and libraries are loaded, after so many seconds without waits."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Waited:
    """Seconds waited for others so far, and the `monotonic` start of the current wait, if any."""

    seconds: float
    since: float | None


@dataclass(frozen=True, slots=True)
class Noticed:
    """A warning for the user of the study."""

    notice: Notice


@dataclass(frozen=True, slots=True)
class Returned:
    """The value of a call, and what the call damaged in its process; empty if nothing."""

    value: Any
    damage: str


@dataclass(frozen=True, slots=True)
class Raised:
    """The error that ended a call."""

    error: Exception


Message = (
    StepBegun | StepDone | FoldReached | Loading | Loaded | Waited | Noticed | Returned | Raised
)


def _ignore(message: Message) -> None:
    """Report to nobody: the call runs outside a sandbox."""


_SEND: list[Callable[[Message], None]] = [_ignore]
"""The receiver of reports of this process, which runs one call at a time."""


@contextmanager
def reporting_to(send: Callable[[Message], None]) -> Iterator[None]:
    """Send the reports of the body to a function."""
    _SEND.append(send)
    try:
        yield
    finally:
        _SEND.pop()


def report(message: Message) -> None:
    """Report to the worker that waits for this call."""
    _SEND[-1](message)


def report_fold(step: str, fold: int, costs: Callable[[], Iterable[StepCost]] = tuple) -> None:
    """Report the step and fold that the call has reached, with all costs so far."""
    if _SEND[-1] is not _ignore:
        report(FoldReached(step, fold, tuple(costs())))


def report_waits(waits: Waits) -> None:
    """Report how long the call has waited for others, and whether it waits now."""
    report(Waited(waits.seconds, waits.since))


@contextmanager
def loading() -> Iterator[None]:
    """Report that the body loads data and libraries; the clock of the call starts afterwards."""
    report(Loading())
    started = monotonic()
    yield
    report(Loaded(monotonic() - started))
