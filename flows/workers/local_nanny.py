"""Nannies of local workers, which repeat failed starts with pauses that double each time.

Dask's own nanny gives up after one failed start, and endlessly restarts workers that die at once.
"""

import asyncio
from contextlib import nullcontext
from pathlib import Path
from time import monotonic
from typing import Any

import distributed
from distributed.core import Status

from prefect_tune.flows.workers.fork_server import (
    METHOD,
    end_stopped_fork_server,
    environment,
    fork_server_pid,
)
from prefect_tune.flows.workers.scratch import scratch_folder
from prefect_tune.flows.workers.worker_starts import WorkerStarts
from prefect_tune.tasks.worker.start_log import log_size
from prefect_tune.tasks.worker.trial_note import note_path, read_text

_TICK_SECONDS = 0.1
_CLOSED = (Status.closing, Status.closed, Status.closing_gracefully, Status.failed)
_FAILED_START = "nanny-instantiate-failed"
"""Reason given by Dask's nanny when it closes itself after a failed start."""
_UNKNOWN_CODE = 255
"""Exit code of a process whose fork server ended before it could report a code."""


class LocalNanny(distributed.Nanny):
    """A nanny that repeats failed starts until a worker is up or the flow ends."""

    process: Any  # Dask's annotation is not seen where its methods are untyped

    def __init__(self, *arguments: Any, starts: WorkerStarts, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.last_death = ""
        self._starts = starts
        self._starting = asyncio.Lock()
        self._is_closing = False
        self._exit_code: int | None = None
        self._server: int | None = None
        self._note: Path | None = None
        self._pause_seconds = 0.0

    async def instantiate(self) -> Status:
        """Start a worker, repeating failed starts; return `failed` if the flow has ended meanwhile.

        Raises `NoWorkers` if the nanny's first worker cannot be started within a minute.
        """
        async with self._starting:
            while await self._paused():
                since, log_since = self._starts.clock(), log_size(scratch_folder())
                try:
                    # A spawned process inherits the environment of this moment.
                    with environment() if METHOD == "spawn" else nullcontext():
                        cause = await self._start_once(log_since)
                finally:
                    if not self._is_up():
                        self._discard()
                if cause is None:
                    self._starts.note_up(self.address)
                    return Status.running
                self._pause_seconds = self._starts.note_failure(self.address, cause, since)
                if self.status == Status.init and self._starts.is_hopeless(self.address):
                    raise self._starts.no_workers()
        return Status.failed

    async def close(self, timeout: float = 5, reason: str = "") -> Any:  # noqa: ASYNC109 - Dask's
        """Close the nanny and its worker, even during a start."""
        if reason == _FAILED_START:  # `instantiate` repeats the start
            return "OK"
        self._is_closing = True
        end_stopped_fork_server()  # it would not report that the worker ended
        async with self._starting:
            pass
        return await super().close(timeout=timeout, reason=reason)

    async def _start_once(self, log_since: int) -> str | None:
        """Start a worker once; return the cause of a failure, or None if the worker is up."""
        self._exit_code, self._server = None, fork_server_pid()
        attempt = asyncio.ensure_future(super().instantiate())
        seconds = self._starts.start_seconds(self.address)
        until = monotonic() + seconds
        try:
            while not attempt.done() and self._is_wanted() and monotonic() < until:
                await asyncio.wait([attempt], timeout=_TICK_SECONDS)
        finally:
            attempt.cancel()  # has no effect if done
        if not attempt.done():
            end_stopped_fork_server()  # the attempt may wait for it
            await asyncio.wait([attempt])
            return f"was not up after {seconds:.0f} s"
        if (error := attempt.exception()) is not None:
            return self._starts.explain_error(error, log_since)
        if not self._is_up():
            return self._starts.explain(self._exit_code, log_since=log_since)
        self._server = fork_server_pid()
        self._note = note_path(self.process.worker_dir, self.process.pid)
        return None

    def _is_up(self) -> bool:
        return self.process is not None and self.process.status == Status.running

    def _is_wanted(self) -> bool:
        return not (self._is_closing or self._starts.is_over or self.status in _CLOSED)

    async def _paused(self) -> bool:
        until, self._pause_seconds = monotonic() + self._pause_seconds, 0.0
        while self._is_wanted() and monotonic() < until:  # noqa: ASYNC110 - any thread ends it
            await asyncio.sleep(_TICK_SECONDS)
        return self._is_wanted()

    def _discard(self) -> None:
        former, self.process = self.process, None
        if former is None:
            return
        former.on_exit = None
        if former.process is not None:
            # Its thread may still be forking the process; the signal follows after that.
            killing = asyncio.ensure_future(former.process.kill())
            killing.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _on_worker_exit_sync(self, exitcode: int) -> None:
        """Record the exit code of a worker; if the worker was up, start another one."""
        self._exit_code = exitcode
        if self._starting.locked():  # `instantiate` repeats the start itself
            return
        self.last_death = self._starts.explain(exitcode)
        if METHOD == "forkserver" and exitcode == _UNKNOWN_CODE and self._server is not None:
            self._starts.note_server_death(self._server)
            self.last_death += " with the process that workers are forked from"
        had_trial = False
        if exitcode != 0 and (note := self._note) is not None:
            # Ending a worker removes the note of its trial.
            had_trial = not note.exists() or read_text(note) is not None
        if self._starts.note_death(self.address, had_trial=had_trial):
            now = self._starts.clock()
            self._pause_seconds = self._starts.note_failure(self.address, self.last_death, now)
        super()._on_worker_exit_sync(exitcode)

    async def _on_worker_exit(self, exitcode: int) -> None:
        """Restart the worker, but only once the nanny has started, as Dask does not wait for it."""
        while self.status == Status.init:  # noqa: ASYNC110 - Dask has no event for it
            await asyncio.sleep(_TICK_SECONDS)
        await super()._on_worker_exit(exitcode)


class LocalCluster(distributed.SpecCluster):
    """A cluster of this machine."""

    starts: WorkerStarts
