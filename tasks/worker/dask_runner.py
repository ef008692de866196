"""A Dask task runner for trials at a tenth of the cost of prefect-dask's.

prefect-dask rebuilds the flow's context, settings and API client for every task, some 155 ms of
CPU. This runner does so once per worker process. It also holds the first two states of a task run
back for half a second, and drops them if the task ends by then: its last event has all that is
shown. Both wrap names of Prefect that are not public; a version without them takes the stock way.
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
class _Held:
    since: float
    context: Context
    send: Callable[[], Any]


class _Holder:
    """Sender of task runs' events, which holds those of states that are not final."""

    def __init__(self, send: Callable[..., Any]) -> None:
        self._send = send
        self._held: dict[Any, _Held] = {}
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
        held = _Held(monotonic(), copy_context(), send)  # the context names the flow run
        with self._lock:
            self._held[task_run.id] = held
        return None

    def _release(self) -> None:
        while True:
            sleep(HOLD_SECONDS / 4)
            before = monotonic() - HOLD_SECONDS
            with self._lock:
                due = [i for i, held in self._held.items() if held.since < before]
                # Sent under the lock, so that a last event never overtakes them.
                for task_run_id in due:
                    held = self._held.pop(task_run_id)
                    held.context.run(held.send)


def hold_events_of_short_runs() -> bool:
    """Hold events back in this process from now on; return whether that is possible."""
    send = getattr(task_engine, _SENDER, None)
    if send is None:
        return False
    if not isinstance(send, _Holder):
        setattr(task_engine, _SENDER, _Holder(send))
    return True


class WorkerFault(RuntimeError):  # noqa: N818 - it says what happened
    """A worker could not begin or end a task, whatever the task.

    Args:
        worker: Its address.
        reason: Why not.
    """

    def __init__(self, worker: str, reason: str) -> None:
        super().__init__(worker, reason)
        self.worker, self.reason = worker, reason


class LeanDaskTaskRunner(DaskTaskRunner):
    """Runner on Dask that sends the flow run's context once, and rebuilds it once per worker.

    Made inside a flow run, and used as a context manager there. Takes what `DaskTaskRunner` takes.
    """

    def submit_lean(
        self,
        task: Task[Any, Any],
        parameters: Mapping[str, Any],
        workers: Sequence[str] | None = None,
        *,
        allow_other_workers: bool = False,
    ) -> PrefectDaskFuture[Any]:
        """Submit one run of a task; its parameters hold no futures.

        Args:
            task: The task.
            parameters: Its parameters.
            workers: Addresses of those that may run it; None for all. The stock runner takes any.
            allow_other_workers: Whether others may run it where none of these is left.

        Returns:
            A future whose wrapped future ends with the state of the task run.
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
        """Do on workers now what their first task run would do, and something else.

        From then on, threads may submit from within other task runs of the flow run.

        Args:
            make_ready: The something else.
            workers: Addresses of the workers.
        """
        futures = [
            self.client.submit(
                _prepare,
                self._context,
                make_ready,
                workers=[worker],
                allow_other_workers=True,  # a worker that dies is back under another address
                pure=False,
            )
            for worker in workers
        ]
        for future in futures:
            with suppress(KilledWorker):  # the new one prepares itself with its first task
                future.result()

    @cached_property
    def _context(self) -> bytes | None:
        """Return the flow run's context as bytes; None where the lean way does not work."""
        if not is_supported():
            warn(
                "unknown Prefect",
                "this version of Prefect is not known to the lean Dask runner; each trial costs "
                "some 0.1 s more",
            )
            return None
        # Without an API address, Prefect has started a server for this process alone: workers
        # must be told its address, or each of them starts one more.
        url = str(get_client(sync_client=True).api_url)
        # A worker that starts while the API is away must not ask it for its version.
        sent = {PREFECT_API_URL: url, PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED: False}
        with temporary_settings(sent):
            return cast("bytes", cloudpickle.dumps(serialize_context()))


def is_supported() -> bool:
    """Return whether Prefect has the names that the lean way needs."""
    return all(
        hasattr(context, "__var__")
        for context in (FlowRunContext, SettingsContext, SyncClientContext)
    )


def drain_events(timeout_seconds: float = 60.0) -> None:
    """Send the server all that this process has not yet told it."""
    for service in (EventsWorker, APILogWorker):
        service.drain_all(timeout=timeout_seconds, at_exit=False)


async def drain_worker(timeout_seconds: float = 60.0) -> None:
    """Drain events on a Dask worker's event loop."""
    for service in (EventsWorker, APILogWorker):
        pending = service.drain_all(timeout=timeout_seconds, at_exit=False)
        if isawaitable(pending):
            await pending


async def end_worker(address: str, dask_worker: Any) -> None:
    """End a worker whatever it is doing, with all that it has started.

    Run by its nanny, which starts another one.

    Args:
        address: The worker. One that has taken its place meanwhile is left alone: a nanny whose
            new worker is killed while it starts gives up.
        dask_worker: The nanny.
    """
    process = dask_worker.process
    if process is None:  # it has ended, and its nanny has not started another one yet
        return
    if process.status == Status.starting:  # until it has started, it has the former's address
        await process.running.wait()
    is_meant = process.status == Status.running and process.worker_address == address
    if is_meant and process.is_alive():
        ProcessTree(process.pid).end()


def _run_in_worker(
    context: bytes, task: Task[Any, Any], parameters: dict[str, Any], task_run_id: UUID
) -> State[Any]:
    """Run a task as a part of the flow run that submitted it."""
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
    """Settings, API client and flow run, as this worker process knows them."""

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
        """Set everything up for one task run, and nothing beyond it."""
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
