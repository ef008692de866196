"""Limits of a trial, kept by the nanny of its worker: a process that no native code can hold up.

The worker notes its trial, and the nanny reads the note ten times a second.
A trial that is over a limit is frozen, the flow is told why, and the worker's process is killed;
the nanny starts another one. When a worker dies of itself, the flow is told where it was.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from distributed.diagnostics.plugin import NannyPlugin
from distributed.system import MEMORY_LIMIT

from prefect_tune.tasks.worker.trial_limits import TrialLimits, share_of_memory
from prefect_tune.tasks.worker.trial_note import note_path, own_seconds, read_note

__all__ = ["LimitKeeper"]

_LOOK_SECONDS = 0.1
_GRACE_SECONDS = 0.1
"""Between telling the flow and the kill, so that Dask does not start the trial elsewhere."""
_LOGGER = logging.getLogger(__name__)


class LimitKeeper(NannyPlugin):
    """Nanny plugin that keeps the trials of one flow run within their limits.

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
        self._path = note_path(nanny.worker_dir, self._pid)
        note = self._read()
        if not note:
            return
        seconds = own_seconds(note)
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
        """Return what the worker has noted, if it runs a trial of ours."""
        note = read_note(self._path)
        return note if note.get("flow_run") == self._flow_run else {}

    def _forget(self) -> None:
        """Forget a process that has ended."""
        self._pid = None
        self._path.unlink(missing_ok=True)

    async def _tell(self, nanny: Any, note: Mapping[str, Any], kind: str, message: str) -> None:
        failure = {
            "kind": kind,
            "message": message,
            "step": note.get("step"),
            "fold": note.get("fold"),
            "cost_seconds": own_seconds(note),
            "steps": note.get("steps", []),
        }
        word = {"trial": note["trial"], "worker": note["worker"], "failure": failure}
        await nanny.scheduler.log_event(topic=self.topic, msg=word)
