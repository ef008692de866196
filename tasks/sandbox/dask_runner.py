"""A Dask task runner for trials, with a tenth of the overhead of prefect-dask's runner.

prefect-dask rebuilds the flow's context, settings and API client for every task, which takes about
155 ms of CPU; this runner rebuilds them once per worker thread. This runner also delays the first
two states of a task run by half a second, and drops them if the task has ended by then. Both
optimizations need private names of Prefect; if a version of Prefect lacks these names, the stock
runner is used.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import asdict, dataclass
from functools import cached_property
from inspect import isawaitable
from time import monotonic, sleep
from typing import Any, Self, cast
from uuid import UUID, uuid4

import cloudpickle
from distributed import get_worker
from distributed.system import MEMORY_LIMIT
from prefect import Task, task_engine
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.context import (
    FlowRunContext,
    SettingsContext,
    SyncClientContext,
    TaskRunContext,
    serialize_context,
)
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED,
    temporary_settings,
)
from prefect.task_engine import run_task_sync
from prefect_dask import DaskTaskRunner
from prefect_dask.client import PrefectDaskClient
from prefect_dask.task_runners import PrefectDaskFuture

from prefect_tune.storage.notices import Notice, warn
from prefect_tune.tasks.problem import share_of_memory
from prefect_tune.tasks.sandbox.sandbox import SANDBOXES, CallProgress

HOLD_SECONDS = 0.5
_SENDER = "emit_task_run_state_change_event"
_IS_OURS: ContextVar[bool] = ContextVar("is_task_of_trial", default=False)
"""Whether this thread runs a task of prefect-tune; the process may be the user's program."""
TOPIC = "prefect-tune"
"""Dask topic of steps and warnings of all flow runs."""
_END_SECONDS, _LOOK_SECONDS = 2.0, 0.02
"""Longest wait for cancelled tasks to end, and interval between two checks."""
_STEP_SECONDS = 0.5
"""Shortest interval between two reports of a trial's step."""


@dataclass(frozen=True, slots=True)
class _DelayedEvent:
    since: float
    context: Context
    send: Callable[[], Any]


class _EventDelayer:
    """Sender of task run events that delays events of non-final states."""

    def __init__(self, send: Callable[..., Any]) -> None:
        self._send = send
        self._held: dict[Any, _DelayedEvent] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._release, daemon=True, name="held task run events").start()

    def __call__(
        self, task_run: Any, initial_state: Any, validated_state: Any, follows: Any = None
    ) -> Any:
        def send() -> Any:
            return self._send(task_run, initial_state, validated_state, follows)

        if validated_state.is_final() or not _IS_OURS.get():
            with self._lock:
                self._held.pop(task_run.id, None)
            return send()
        # The copied context contains the flow run.
        held = _DelayedEvent(monotonic(), copy_context(), send)
        with self._lock:
            self._held[task_run.id] = held
        return None

    def _release(self) -> None:
        while True:
            sleep(HOLD_SECONDS / 4)
            before = monotonic() - HOLD_SECONDS
            with self._lock:
                due = [i for i, held in self._held.items() if held.since < before]
                # Sending under the lock ensures that a final event never overtakes these events.
                for task_run_id in due:
                    held = self._held.pop(task_run_id)
                    held.context.run(held.send)


def hold_events_of_short_runs() -> bool:
    """Delay events of non-final states in this process; return whether this is possible."""
    send = getattr(task_engine, _SENDER, None)
    if send is None:
        return False
    if not isinstance(send, _EventDelayer):
        setattr(task_engine, _SENDER, _EventDelayer(send))
    return True


class LeanDaskTaskRunner(DaskTaskRunner):
    """Dask task runner that rebuilds the flow run's context only once per worker thread.

    Create the runner inside a flow run, and use it as a context manager. Arguments are those of
    `DaskTaskRunner`.
    """

    def __enter__(self) -> Self:
        super().__enter__()
        _ = self._context  # a context created inside a task run has the task's parameters
        return self

    _own: PrefectDaskClient | None = None

    @property
    def client(self) -> PrefectDaskClient:
        """Client of this runner's cluster; the stock runner would use any existing client."""
        if self._own is None:
            client = PrefectDaskClient(self._cluster or self.address, **self.client_kwargs)
            self._own = self._exit_stack.enter_context(client)
        return self._own

    def submit_lean(
        self,
        task: Task[Any, Any],
        parameters: Mapping[str, Any],
        worker: str,
    ) -> PrefectDaskFuture[Any]:
        """Submit a run of a task whose parameters contain no futures.

        `worker` is the address of the worker to use, which the stock runner ignores. Returns a
        future for the state of the task run.
        """
        if self._context is None:
            return cast("PrefectDaskFuture[Any]", self.submit(task, dict(parameters)))
        task_run_id = uuid4()
        future = self.client.submit(
            _run_in_worker,
            self._context,
            task,
            dict(parameters),
            task_run_id,
            key=f"{task.name}-{task_run_id}",
            pure=False,
            workers=[worker],
        )
        return PrefectDaskFuture(wrapped_future=future, task_run_id=task_run_id)

    @cached_property
    def _context(self) -> bytes | None:
        if not is_supported():
            warn(
                "unknown Prefect",
                "the lean Dask runner does not support this version of Prefect; each trial costs "
                "about 0.1 s more",
            )
            return None
        # If no API address is set, Prefect has started a server for this process. Workers need the
        # address of this server; otherwise each worker would start its own server.
        url = str(get_client(sync_client=True).api_url)
        # A worker that starts during an API outage must not query the API's version.
        sent = {PREFECT_API_URL: url, PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED: False}
        with temporary_settings(sent):
            return cast("bytes", cloudpickle.dumps(serialize_context()))


def is_supported() -> bool:
    """Return whether Prefect has the private names needed by this runner."""
    return all(
        hasattr(context, "__var__")
        for context in (FlowRunContext, SettingsContext, SyncClientContext)
    )


_LEVELS_LOCK = threading.Lock()
_FORMER_LEVELS: dict[str, list[int]] = {}
"""Original levels of loggers, one per current user, by logger name."""


@contextmanager
def only_errors_logged(name: str) -> Iterator[None]:
    """Log only errors of a logger during the body; concurrent flows may do the same."""
    logger = logging.getLogger(name)
    with _LEVELS_LOCK:
        _FORMER_LEVELS.setdefault(name, []).append(logger.level)
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        with _LEVELS_LOCK:
            first, *others = _FORMER_LEVELS[name]
            _FORMER_LEVELS[name] = [first, *others[1:]] if others else []
            if not others:
                logger.setLevel(first)


def drain_events(timeout_seconds: float = 60.0) -> None:
    """Send all pending events of this process to the server."""
    for service in (EventsWorker, APILogWorker):
        with only_errors_logged(service.__name__):  # stopping warns about each pending event
            service.drain_all(timeout=timeout_seconds, at_exit=False)


async def end_sandboxes(timeout_seconds: float = 60.0) -> None:
    """End a worker's sandboxes after its tasks have ended, and send the pending events."""
    until = monotonic() + _END_SECONDS
    while SANDBOXES.n_taken and monotonic() < until:  # noqa: ASYNC110 - threads end them
        await asyncio.sleep(_LOOK_SECONDS)
    await asyncio.to_thread(SANDBOXES.close)
    for service in (EventsWorker, APILogWorker):
        pending = service.drain_all(timeout=timeout_seconds, at_exit=False)
        if isawaitable(pending):
            await pending


def _run_in_worker(
    context: bytes, task: Task[Any, Any], parameters: dict[str, Any], task_run_id: UUID
) -> State[Any]:
    with _OF_THREAD.entered(context):
        return cast(
            "State[Any]",
            run_task_sync(
                task, task_run_id=task_run_id, parameters=parameters, return_type="state"
            ),
        )


class _ThreadContext(threading.local):
    """Settings, API client and flow run of one thread; threads cannot share these objects."""

    _serialized = b""

    def _rebuild(self, serialized: bytes) -> None:
        hold_events_of_short_runs()
        _quiet_task_runs()
        context = cloudpickle.loads(serialized)
        self._settings = SettingsContext(**context["settings_context"])
        with self._settings:
            self._client = ExitStack().enter_context(SyncClientContext())
            flow_run = context["flow_run_context"]
            self._flow_run = FlowRunContext(
                **flow_run,
                client=self._client.client,
                task_runner=flow_run["flow"].task_runner,
                detached=True,
            )
        self._serialized = serialized

    @contextmanager
    def entered(self, serialized: bytes) -> Iterator[None]:
        if self._serialized != serialized:
            self._rebuild(serialized)
        token, ours = SyncClientContext.__var__.set(self._client), _IS_OURS.set(True)
        flow_run = self._flow_run.model_copy(
            update={"run_results": {}, "task_run_dynamic_keys": {}}
        )
        try:
            with self._settings, flow_run:
                yield
        finally:
            SyncClientContext.__var__.reset(token)
            _IS_OURS.reset(ours)


_OF_THREAD = _ThreadContext()


_TASK_RUNS = "prefect.task_runs"


class _Quiet(logging.Filter):
    """Filter that drops log records of prefect-tune's task runs below a level."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        is_ours = record.name.startswith(_TASK_RUNS) and _IS_OURS.get()
        return record.levelno >= self._level or not is_ours


def _quiet_task_runs() -> None:
    """For prefect-tune's task runs, log only warnings to the server and nothing to the console."""
    logging.getLogger(_TASK_RUNS).addFilter(_WARNINGS)  # a filter is never added twice
    for handler in (*logging.getLogger("prefect").handlers, *logging.getLogger().handlers):
        handler.addFilter(_NOTHING)


_WARNINGS, _NOTHING = _Quiet(logging.WARNING), _Quiet(logging.CRITICAL + 1)


class DaskTask:
    """The Dask task that this thread runs, if any."""

    def __init__(self) -> None:
        context = TaskRunContext.get()
        self._task_run = context.task_run if context else None
        self._told: tuple[Any, ...] = ()
        self._told_at = 0.0
        try:
            self._worker: Any = get_worker()
        except ValueError:
            self._worker = None
        else:
            self._key = self._worker.get_current_task()

    @property
    def address(self) -> str:
        """Address of the worker; empty without a worker."""
        return "" if self._worker is None else str(self._worker.address)

    @property
    def memory_bytes(self) -> int:
        """This task's share of the worker's memory, or of the machine's memory without a worker."""
        if self._worker is None:
            return share_of_memory(1)
        own = self._worker.memory_manager.memory_limit or MEMORY_LIMIT
        return share_of_memory(self._worker.state.nthreads, own)

    def is_unwanted(self) -> bool:
        """Return whether the task was cancelled or the flow is gone."""
        if self._worker is None:
            return False
        known = self._worker.state.tasks.get(self._key)
        return known is None or known.state == "cancelled"

    def observe(self, seen: CallProgress | Notice) -> None:
        """Send the flow a warning, or the call's step if the step has changed."""
        if self._worker is None or self._task_run is None:
            return
        about = {"flow_run": str(self._task_run.flow_run_id), "task_run": str(self._task_run.id)}
        if isinstance(seen, Notice):
            self._worker.log_event(TOPIC, {**about, "notice": asdict(seen)})
            return
        step = seen.step, seen.fold
        if step != self._told and monotonic() - self._told_at >= _STEP_SECONDS:
            self._told, self._told_at = step, monotonic()
            at = {"step": seen.step, "fold": seen.fold, "seconds": seen.seconds()}
            self._worker.log_event(TOPIC, {**about, **at})
