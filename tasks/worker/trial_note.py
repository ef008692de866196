"""A worker's note of its trial and where it stands, for its nanny to read.

It is a file beside the worker's folder, which goes when the worker dies.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from pathlib import Path
from time import monotonic
from typing import Any

import distributed
from prefect.context import TaskRunContext

from prefect_tune.optimizers.trials.trial import StepCost
from prefect_tune.storage.waiting.waited_seconds import Waits

__all__ = [
    "note_path",
    "note_step",
    "note_waits",
    "own_seconds",
    "read_note",
    "this_worker",
    "trial_noted",
]

_COST_FIELDS = tuple(f.name for f in fields(StepCost))


@dataclass(slots=True)
class _Note:
    """The note of this process."""

    path: Path
    content: dict[str, Any] = field(default_factory=dict)

    def write(self, **content: Any) -> None:
        self.content |= content
        with suppress(OSError):  # a full disk must not end the trial
            self.path.write_text(json.dumps(self.content))


_NOTED: ContextVar[_Note | None] = ContextVar("trial_note", default=None)


@contextmanager
def trial_noted() -> Iterator[None]:
    """Note the task run in the body as this worker's trial, whose limits are then kept."""
    context = TaskRunContext.get()
    worker = this_worker()
    if context is None or worker is None:
        yield
        return
    note = _Note(note_path(worker.local_directory, os.getpid()))
    note.write(
        trial=str(context.task_run.id),
        flow_run=str(context.task_run.flow_run_id),
        worker=worker.address,
        started=monotonic(),
    )
    token = _NOTED.set(note)
    try:
        yield
    finally:
        _NOTED.reset(token)
        note.path.unlink(missing_ok=True)


def note_path(worker_folder: str, pid: int) -> Path:
    """Return the file that a worker's process notes its trial in."""
    return Path(worker_folder).parent / f"trial-{pid}.json"


def this_worker() -> Any:
    """Return the Dask worker that runs this; None elsewhere."""
    try:
        return distributed.get_worker()
    except ValueError:
        return None


def note_step(step: str, fold: int, costs: Callable[[], Iterable[StepCost]] = tuple) -> None:
    """Note which step of which fold the trial of this process is at.

    Args:
        step: Name of the step.
        fold: Number of the fold.
        costs: Says what each step and fold has taken that has ended.
    """
    if (note := _NOTED.get()) is not None:
        note.write(step=step, fold=fold, steps=[_as_json(cost) for cost in costs()])


def note_waits(waits: Waits) -> None:
    """Note how long the trial of this process has waited for others, and whether it waits now."""
    if (note := _NOTED.get()) is not None:
        note.write(waited=waits.seconds, waits_since=waits.since)


def _as_json(cost: StepCost) -> dict[str, Any]:
    # A note is written for each step and fold, and `asdict` copies all values deeply.
    return {name: getattr(cost, name) for name in _COST_FIELDS}


def own_seconds(note: Mapping[str, Any]) -> float:
    """Return how long the trial of a note has worked, without its waits for others."""
    until = note.get("waits_since") or monotonic()
    return float(until - note["started"] - note.get("waited", 0.0))


def read_note(path: Path) -> Mapping[str, Any]:
    """Read a note: `trial`, `flow_run`, `worker`, `started`, perhaps `step`, `fold` and `steps`.

    Empty if it runs no trial, or is just writing.
    """
    try:
        note: Mapping[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return note
