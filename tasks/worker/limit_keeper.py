"""Limits of a trial, enforced by the nanny of its worker, so that native code cannot delay them.

The nanny reads the worker's note of its trial ten times a second. If a trial exceeds a limit, all
its processes are frozen, the flow is told why, and the processes are killed. If a worker dies by
itself, its processes are ended and the flow is told the step.

The scheduler gives the plugin to every nanny. A killed flow cannot withdraw it, and a plugin misses
its removal while its worker restarts, so each plugin checks the flow's mark on the scheduler.
"""

import asyncio
import logging
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import psutil
from distributed.diagnostics.plugin import NannyPlugin
from distributed.protocol.pickle import dumps
from distributed.system import MEMORY_LIMIT

from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.storage.notices import Notice
from prefect_tune.tasks.problem import TrialLimits, share_of_memory
from prefect_tune.tasks.worker.orphans import GUARD
from prefect_tune.tasks.worker.process_tree import ProcessTree, descendants
from prefect_tune.tasks.worker.trial_note import note_path, notice_topic, own_seconds, read_note

_PREFIX = "prefect-tune-limits-"


def mark_of(flow_run: str, client: str) -> str:
    """Return the name of the mark that a flow run, with its Dask client, sets on a scheduler."""
    return f"{_PREFIX}{flow_run} {client}"


async def take_back(mark: str, dask_scheduler: Any) -> None:
    """Remove a mark, and all marks whose client is gone; runs on the scheduler."""
    for name in list(dask_scheduler.nanny_plugins):
        if name.startswith(_PREFIX) and (name == mark or not _has_client(name, dask_scheduler)):
            await dask_scheduler.unregister_nanny_plugin(None, name)
    topics = dask_scheduler._broker._topics  # noqa: SLF001 - the broker never drops topics
    for name in [n for n in topics if n.startswith(_PREFIX)]:
        if name not in dask_scheduler.nanny_plugins:
            del topics[name]


async def is_wanted(mark: str, nanny: Any) -> bool:
    """Return whether the scheduler still has a mark; true if the scheduler cannot answer."""
    call = {"function": dumps(_is_wanted), "args": dumps((mark,)), "kwargs": dumps({})}
    try:
        answer = await nanny.scheduler.run_function(**call, wait=True)
    except OSError:
        return True
    return answer["status"] != "OK" or bool(answer["result"])


def _is_wanted(mark: str, dask_scheduler: Any) -> bool:
    return mark in dask_scheduler.nanny_plugins and _has_client(mark, dask_scheduler)


def _has_client(mark: str, dask_scheduler: Any) -> bool:
    return mark.rpartition(" ")[2] in dask_scheduler.clients


_LOAD_SECONDS = 600.0
"""Time limit for loading data and libraries, before the clock of the trial starts; a trial is not
charged for a slow disk."""
_LOOK_SECONDS = 0.1
_GRACE_SECONDS = 0.1
"""Delay between telling the flow and the kill, so that Dask does not start the trial elsewhere."""
_FOLLOW_SECONDS = 5.0
_MOST_MISSED = 2
"""Consecutive checks that may miss the flow, because its connection may return."""
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Worker:
    """A worker's process with all its child processes, and the file that it notes its trial in."""

    tree: ProcessTree
    note: Path
    before: Collection[int] = ()
    """Processes below it that belong to no trial."""

    @classmethod
    def met(cls, nanny: Any, before: Collection[int] = ()) -> "_Worker | None":
        pid, folder = nanny.pid, nanny.worker_dir
        if pid is None or folder is None:
            return None
        worker = cls(ProcessTree(pid), note_path(folder, pid), before)
        if psutil.Process(pid).ppid() == os.getpid():  # if not, see `orphans`
            GUARD.watch(pid)
        return worker

    def end(self) -> None:
        self.tree.end()
        GUARD.forget(self.tree.pid)


class LimitKeeper(NannyPlugin):
    """Nanny plugin that enforces the limits of one flow run's trials, with events to `topic`.

    An event has the `trial` (its task run's id), addresses of the `worker` and its `nanny`, and
    either the `failure` or a new `step` with `fold` and `seconds`. Steps are at least
    `tell_seconds` apart. When the flow's Dask `client` is gone, the plugin ends itself and a
    running trial.
    """

    restart = False

    def __init__(
        self, flow_run: str, limits: TrialLimits, client: str, tell_seconds: float = 0.5
    ) -> None:
        self.name = self.topic = mark_of(flow_run, client)
        self._flow_run, self._limits, self._tell_seconds = flow_run, limits, tell_seconds
        self._told: tuple[Any, ...] = ()
        self._told_at = -inf
        self._telling: asyncio.Task[None] | None = None
        self._worker: _Worker | None = None
        self._loops: tuple[asyncio.Task[None], ...] = ()

    def setup(self, nanny: Any) -> None:
        """Start watching."""
        GUARD.enter()
        with suppress(psutil.NoSuchProcess):
            self._worker = _Worker.met(nanny, descendants(nanny.pid) if nanny.pid else ())
        self._loops = tuple(map(asyncio.create_task, (self._watch(nanny), self._follow(nanny))))

    def teardown(self, nanny: Any) -> None:  # noqa: ARG002 - the interface's
        """Stop watching, and end processes that trials have left behind."""
        for loop in (*self._loops, *([self._telling] if self._telling else [])):
            loop.cancel()
        if self._worker is not None:
            self._worker.tree.end_below(self._worker.before)
        GUARD.leave()

    async def _watch(self, nanny: Any) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self._check_trial(nanny)
            except (OSError, psutil.Error):  # the process ended during the check
                continue
            except Exception:
                text = "the limits of a trial could not be enforced for a moment"
                _LOGGER.exception(text)
                notice = Notice("limits", text, flow_run=self._flow_run)
                await self._publish(nanny, asdict(notice), notice_topic(self._flow_run))

    async def _follow(self, nanny: Any) -> None:
        n_missed = 0
        while n_missed < _MOST_MISSED:
            await asyncio.sleep(_FOLLOW_SECONDS)
            n_missed = 0 if await is_wanted(self.name, nanny) else n_missed + 1
        if self._worker is not None and self._read(self._worker):
            self._end(self._worker)
        with suppress(OSError):
            await nanny.scheduler.run_function(
                function=dumps(take_back), args=dumps((self.name,)), kwargs=dumps({}), wait=False
            )
        await nanny.plugin_remove(self.name)

    async def _check_trial(self, nanny: Any) -> None:
        if self._worker is not None and nanny.pid != self._worker.tree.pid:
            died = self._read(self._worker)
            self._end(self._worker)
            if died:
                # Nannies of local workers know the cause.
                how = f": it {nanny.last_death}" if getattr(nanny, "last_death", "") else ""
                await self._tell(nanny, died, FailureKind.CRASHED, f"the worker process died{how}")
        self._worker = self._worker or _Worker.met(nanny)
        if self._worker is None or not (note := self._read(self._worker)):
            return
        self._worker.tree.refresh()
        seconds = own_seconds(note)
        limit_bytes = self._limits.memory_bytes or share_of_memory(
            1, nanny.memory_manager.memory_limit or MEMORY_LIMIT
        )
        limit_seconds, too_long = self._time_limit(note)
        # Memory first: if a check comes late, memory is the better explanation.
        if memory_bytes := self._worker.tree.memory_above(limit_bytes):
            message = (
                f"took {memory_bytes / 1e9:.4g} GB of memory, more than "
                f"{limit_bytes / 1e9:.3g} GB (raise the limit with --trial-memory)"
            )
            await self._end_trial(nanny, self._worker, note, FailureKind.MEMORY, message)
        elif seconds > limit_seconds:
            await self._end_trial(nanny, self._worker, note, FailureKind.TIMEOUT, too_long)
        else:
            self._tell_step(nanny, note, seconds)

    def _time_limit(self, note: Mapping[str, Any]) -> tuple[float, str]:
        """Return the current time limit in seconds, and the message if the trial exceeds it."""
        if note.get("is_loading"):
            message = f"took more than {_LOAD_SECONDS:g} s to load the data and the libraries"
            return _LOAD_SECONDS, message
        times = note.get("times", 1.0)
        most = times * self._limits.seconds
        seconds = note.get("limit_seconds") or most
        if seconds < most:
            why = "by measured costs and the time left; set another limit with --trial-timeout"
        elif times == 1:
            why = "raise the limit with --trial-timeout"
        else:
            why = f"{times:g} times the limit of a trial, raise it with --trial-timeout"
        return seconds, f"took more than {seconds:.4g} s ({why})"

    def _tell_step(self, nanny: Any, note: Mapping[str, Any], seconds: float) -> None:
        """Tell the flow a trial's step if it is new, without delaying limits."""
        step = note["trial"], note.get("step"), note.get("fold")
        is_new = step != self._told and monotonic() - self._told_at >= self._tell_seconds
        if not is_new or (self._telling is not None and not self._telling.done()):
            return
        self._told, self._told_at = step, monotonic()
        event = dict(zip(("trial", "step", "fold"), step, strict=True))
        event |= {"worker": note["worker"], "seconds": seconds}
        self._telling = asyncio.create_task(self._publish(nanny, event))

    async def _publish(self, nanny: Any, event: Mapping[str, Any], topic: str = "") -> None:
        with suppress(OSError):  # the next event may arrive
            await nanny.scheduler.log_event(topic=topic or self.topic, msg=event)

    async def _end_trial(
        self,
        nanny: Any,
        worker: "_Worker",
        note: Mapping[str, Any],
        kind: FailureKind,
        message: str,
    ) -> None:
        """Freeze a worker with all its child processes, tell the flow why, and kill it."""
        worker.tree.freeze()
        if self._read(worker).get("trial") != note["trial"]:  # the trial has ended in the meantime
            worker.tree.thaw()
            return
        try:
            await self._tell(nanny, note, kind, message)
            await asyncio.sleep(_GRACE_SECONDS)
        finally:
            self._end(worker)

    def _read(self, worker: "_Worker") -> Mapping[str, Any]:
        note = read_note(worker.note)
        return note if note.get("flow_run") == self._flow_run else {}

    def _end(self, worker: "_Worker") -> None:
        worker.end()
        if read_note(worker.note).get("flow_run", self._flow_run) == self._flow_run:
            worker.note.unlink(missing_ok=True)  # or the keeper of another flow run would read it
        self._worker = None

    async def _tell(
        self, nanny: Any, note: Mapping[str, Any], kind: FailureKind, message: str
    ) -> None:
        seconds = own_seconds(note)
        failure = {
            "kind": kind.value,
            "message": message,
            "step": note.get("step"),
            "fold": note.get("fold"),
            "cost_seconds": 0.0 if note.get("is_loading") else seconds,
            "steps": note.get("steps", []),
            "load_seconds": seconds if note.get("is_loading") else note.get("load_seconds", 0.0),
        }
        event = {"trial": note["trial"], "worker": note["worker"], "failure": failure}
        event["nanny"] = nanny.address  # where the trial's output can be fetched
        await nanny.scheduler.log_event(topic=self.topic, msg=event)
