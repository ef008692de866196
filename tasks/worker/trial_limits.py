"""Limits of a trial, kept by the nanny of its worker: a process that no native code can hold up.

The worker notes which trial it runs and where that is. Its nanny looks there ten times a second.
A trial that is over a limit is frozen, the flow is told why, and the worker's process is killed;
the nanny starts another one. When a worker dies of itself, the flow is told where it was.
"""

import asyncio
import json
import logging
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import distributed
import psutil
from distributed.diagnostics.plugin import NannyPlugin
from distributed.system import MEMORY_LIMIT
from prefect.context import TaskRunContext

__all__ = ["LimitKeeper", "TrialLimits", "followed", "note_step", "share_of_memory"]

_LOOK_SECONDS = 0.1
_GRACE_SECONDS = 0.1
"""Between telling the flow and the kill, so that Dask does not start the trial elsewhere."""
_SHARE_OF_MEMORY = 0.9
"""What trials may take of a machine; the rest is for the flow and the server."""


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """What a trial may take.

    Attributes:
        seconds: Wall time from its start on a worker.
        memory_bytes: Resident memory of its worker's process; None for what the worker was
            started with.
    """

    seconds: float
    memory_bytes: int | None = None


def share_of_memory(n_workers: int, memory_bytes: int = MEMORY_LIMIT) -> int:
    """What each of so many workers may take; by default of this machine, or this container."""
    return int(_SHARE_OF_MEMORY * memory_bytes / n_workers)


@dataclass(slots=True)
class _Note:
    """Where the trial of this process is, in a file that its nanny reads."""

    path: Path
    content: dict[str, Any] = field(default_factory=dict)

    def write(self, **content: Any) -> None:
        self.content |= content
        with suppress(OSError):  # a full disk must not end the trial
            self.path.write_text(json.dumps(self.content))


_LOGGER = logging.getLogger(__name__)
_NOTED: ContextVar[_Note | None] = ContextVar("trial_note", default=None)


@contextmanager
def followed() -> Iterator[None]:
    """Have limits apply to the task run in the body; does nothing outside a Dask worker."""
    context = TaskRunContext.get()
    worker = _this_worker()
    if context is None or worker is None:
        yield
        return
    note = _Note(_note_path(worker.local_directory, os.getpid()))
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


def _note_path(worker_folder: str, pid: int) -> Path:
    """Where a worker notes what it does: beside its folder, which goes when it dies."""
    return Path(worker_folder).parent / f"trial-{pid}.json"


def _this_worker() -> Any:
    try:
        return distributed.get_worker()
    except ValueError:
        return None


def note_step(step: str, fold: int) -> None:
    """Note which step of which fold the trial of this process is at."""
    if (note := _NOTED.get()) is not None:
        note.write(step=step, fold=fold)


class LimitKeeper(NannyPlugin):
    """Keeps the trials of one flow run within their limits, in each nanny of a cluster.

    What it did is an event of the topic `topic`: a mapping with the `trial` (its task run's id),
    the `worker`'s address, and the `failure` as the trial will have it.

    Args:
        flow_run: Id of the flow run; trials of others are left alone.
        limits: The limits.
    """

    restart = False

    def __init__(self, flow_run: str, limits: TrialLimits) -> None:
        self.name = self.topic = f"prefect-tune-limits-{flow_run}"
        self._flow_run, self._limits = flow_run, limits
        self._pid: int | None = None
        self._path = Path()
        self._loop: asyncio.Task[None] | None = None

    def setup(self, nanny: Any) -> None:
        """Start looking."""
        self._loop = asyncio.create_task(self._keep(nanny))

    def teardown(self, nanny: Any) -> None:  # noqa: ARG002 - the interface's
        """Stop looking."""
        if self._loop is not None:
            self._loop.cancel()

    async def _keep(self, nanny: Any) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self._look(nanny)
            except (OSError, psutil.Error):  # its process ended under our eyes
                continue
            except Exception:
                _LOGGER.exception("the limits of a trial could not be kept for a moment")

    async def _look(self, nanny: Any) -> None:
        if self._pid is not None and nanny.pid != self._pid:
            died = self._read()
            self._forget()
            if died:
                await self._tell(nanny, died, "crashed", "the worker process died")
        if nanny.worker_dir is None or nanny.pid is None:
            return
        self._pid = nanny.pid
        self._path = _note_path(nanny.worker_dir, self._pid)
        note = self._read()
        if not note:
            return
        seconds = monotonic() - note["started"]
        memory_bytes = psutil.Process(self._pid).memory_info().rss
        limit_bytes = self._limits.memory_bytes or share_of_memory(
            1, nanny.memory_manager.memory_limit or MEMORY_LIMIT
        )
        if seconds > self._limits.seconds:
            kind = "timeout"
            message = f"took more than {self._limits.seconds:g} s (--trial-timeout)"
        elif memory_bytes > limit_bytes:
            kind = "memory"
            message = (
                f"took {memory_bytes / 1e9:.4g} GB of memory, more than "
                f"{limit_bytes / 1e9:.3g} GB (--trial-memory)"
            )
        else:
            return
        await self._end(nanny, note, kind, message)

    async def _end(self, nanny: Any, note: Mapping[str, Any], kind: str, message: str) -> None:
        """Freeze a worker, tell the flow why, and kill it."""
        assert self._pid is not None  # noqa: S101 - the caller's duty
        os.kill(self._pid, signal.SIGSTOP)
        if self._read().get("trial") != note["trial"]:  # it has ended meanwhile
            os.kill(self._pid, signal.SIGCONT)
            return
        try:
            await self._tell(nanny, note, kind, message)
            await asyncio.sleep(_GRACE_SECONDS)
        finally:
            os.kill(self._pid, signal.SIGKILL)
            self._forget()

    def _read(self) -> Mapping[str, Any]:
        """What the worker has noted, if it runs a trial of ours."""
        try:
            note: Mapping[str, Any] = json.loads(self._path.read_text())
        except (OSError, ValueError):  # no trial, or just being written
            return {}
        return note if note["flow_run"] == self._flow_run else {}

    def _forget(self) -> None:
        """Be done with a process that has ended."""
        self._pid = None
        self._path.unlink(missing_ok=True)

    async def _tell(self, nanny: Any, note: Mapping[str, Any], kind: str, message: str) -> None:
        failure = {
            "kind": kind,
            "message": message,
            "step": note.get("step"),
            "fold": note.get("fold"),
            "cost_seconds": monotonic() - note["started"],
        }
        word = {"trial": note["trial"], "worker": note["worker"], "failure": failure}
        await nanny.scheduler.log_event(topic=self.topic, msg=word)
