"""A Dask task runner for trials at a tenth of the cost of prefect-dask's.

prefect-dask rebuilds the flow's context, settings and API client for every task, about 155 ms of
CPU; this runner does so once per worker process. It also delays the first two states of a task run
by half a second and drops them if the task has ended by then. Both wrap private names of Prefect;
if a version lacks them, the stock runner is used.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import cached_property, lru_cache
from inspect import isawaitable
from time import monotonic, sleep
from typing import Any, cast
from uuid import UUID, uuid4

import cloudpickle
from distributed import get_worker
from distributed.core import Status
from distributed.scheduler import KilledWorker
from prefect import Task, task_engine
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext, SettingsContext, SyncClientContext, serialize_context
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED,
    temporary_settings,
)
from prefect.task_engine import run_task_sync
from prefect_dask import DaskTaskRunner
from prefect_dask.task_runners import PrefectDaskFuture

from prefect_tune.storage.notices import warn
from prefect_tune.tasks.worker.process_tree import ProcessTree

HOLD_SECONDS = 0.5
_SENDER = "emit_task_run_state_change_event"


@dataclass(frozen=True, slots=True)
class _DelayedEvent:
    since: float
    context: Context
    send: Callable[[], Any]


class _EventDelayer:
    """Sender of task run events that delays events of states that are not final."""

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

        if validated_state.is_final():
            with self._lock:
                self._held.pop(task_run.id, None)
            return send()
        held = _DelayedEvent(monotonic(), copy_context(), send)  # the context has the flow run
        with self._lock:
            self._held[task_run.id] = held
        return None

    def _release(self) -> None:
        while True:
            sleep(HOLD_SECONDS / 4)
            before = monotonic() - HOLD_SECONDS
            with self._lock:
                due = [i for i, held in self._held.items() if held.since < before]
                # Sent under the lock, so that a final event never overtakes them.
                for task_run_id in due:
                    held = self._held.pop(task_run_id)
                    held.context.run(held.send)


def hold_events_of_short_runs() -> bool:
    """Delay events in this process from now on; return whether this is possible."""
    send = getattr(task_engine, _SENDER, None)
    if send is None:
        return False
    if not isinstance(send, _EventDelayer):
        setattr(task_engine, _SENDER, _EventDelayer(send))
    return True


class WorkerFault(RuntimeError):  # noqa: N818 - reads as an outcome
    """A worker, given by address, could not start or end a task, independent of the task."""

    def __init__(self, worker: str, reason: str) -> None:
        super().__init__(worker, reason)
        self.worker, self.reason = worker, reason


class LeanDaskTaskRunner(DaskTaskRunner):
    """Runner on Dask that sends the flow run's context once, and rebuilds it once per worker.

    Create it inside a flow run and use it as a context manager. Arguments as for `DaskTaskRunner`.
    """

    def submit_lean(
        self,
        task: Task[Any, Any],
        parameters: Mapping[str, Any],
        workers: Sequence[str] | None = None,
        *,
        allow_other_workers: bool = False,
    ) -> PrefectDaskFuture[Any]:
        """Submit one run of a task whose parameters contain no futures.

        `workers` are the addresses of eligible workers, None for all; the stock runner ignores
        them. The future returned wraps a future that ends with the state of the task run.
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
            workers=workers,
            allow_other_workers=allow_other_workers,
        )
        return PrefectDaskFuture(wrapped_future=future, task_run_id=task_run_id)

    def prepare_workers(self, make_ready: Callable[[], None], workers: Sequence[str]) -> None:
        """Prepare workers as their first task run would, and call `make_ready` on each.

        From then on, threads may submit from within other task runs of the flow run.
        """
        futures = [
            self.client.submit(
                _prepare,
                self._context,
                make_ready,
                workers=[worker],
                allow_other_workers=True,  # a worker that dies returns under another address
                pure=False,
            )
            for worker in workers
        ]
        for future in futures:
            with suppress(KilledWorker):  # its successor prepares itself with its first task
                future.result()

    @cached_property
    def _context(self) -> bytes | None:
        if not is_supported():
            warn(
                "unknown Prefect",
                "the lean Dask runner does not support this version of Prefect; each trial costs "
                "about 0.1 s more",
            )
            return None
        # Without an API address, Prefect has started a server for this process. Workers need its
        # address, or each would start another server.
        url = str(get_client(sync_client=True).api_url)
        # A worker that starts during an API outage must not query the API's version.
        sent = {PREFECT_API_URL: url, PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED: False}
        with temporary_settings(sent):
            return cast("bytes", cloudpickle.dumps(serialize_context()))


def is_supported() -> bool:
    """Return whether Prefect has the private names that this runner needs."""
    return all(
        hasattr(context, "__var__")
        for context in (FlowRunContext, SettingsContext, SyncClientContext)
    )


def drain_events(timeout_seconds: float = 60.0) -> None:
    """Send all pending events of this process to the server."""
    for service in (EventsWorker, APILogWorker):
        service.drain_all(timeout=timeout_seconds, at_exit=False)


async def drain_worker(timeout_seconds: float = 60.0) -> None:
    """Drain events on a Dask worker's event loop."""
    for service in (EventsWorker, APILogWorker):
        pending = service.drain_all(timeout=timeout_seconds, at_exit=False)
        if isawaitable(pending):
            await pending


async def end_worker(address: str, dask_worker: Any) -> None:
    """End a worker with all its child processes, even in the middle of a task; runs on its nanny.

    The nanny `dask_worker` starts another worker. A successor that has already replaced the worker
    at `address` is left alone, because a nanny gives up if its new worker is killed at the start.
    """
    process = dask_worker.process
    if process is None:  # it has ended, and its nanny has not started a successor yet
        return
    if process.status == Status.starting:  # until it has started, it has the old address
        await process.running.wait()
    is_meant = process.status == Status.running and process.worker_address == address
    if is_meant and process.is_alive():
        ProcessTree(process.pid).end()


def _run_in_worker(
    context: bytes, task: Task[Any, Any], parameters: dict[str, Any], task_run_id: UUID
) -> State[Any]:
    try:
        with _process_context(context).entered():
            state = run_task_sync(
                task, task_run_id=task_run_id, parameters=parameters, return_type="state"
            )
    except Exception as error:
        raise WorkerFault(get_worker().address, f"{type(error).__name__}: {error}") from error
    return cast("State[Any]", state)


def _prepare(context: bytes | None, make_ready: Callable[[], None]) -> None:
    if context is not None:
        _process_context(context)
    make_ready()


class _ProcessContext:
    """Settings, API client and flow run of this worker process."""

    def __init__(self, serialized: bytes) -> None:
        hold_events_of_short_runs()
        context = cloudpickle.loads(serialized)
        self.settings = SettingsContext(**context["settings_context"])
        with self.settings:
            self._stack = ExitStack()
            self.client = self._stack.enter_context(SyncClientContext())
            flow_run = context["flow_run_context"]
            self.flow_run = FlowRunContext(
                **flow_run,
                client=self.client.client,
                task_runner=flow_run["flow"].task_runner,
                detached=True,
            )

    @contextmanager
    def entered(self) -> Iterator[None]:
        client_token = SyncClientContext.__var__.set(self.client)
        flow_run = self.flow_run.model_copy(update={"run_results": {}, "task_run_dynamic_keys": {}})
        try:
            with self.settings, flow_run:
                yield
        finally:
            SyncClientContext.__var__.reset(client_token)


@lru_cache(maxsize=1)
def _process_context(serialized: bytes) -> _ProcessContext:
    return _ProcessContext(serialized)
