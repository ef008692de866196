"""The Dask workers that may run our tasks, and the tasks that run on them.

Each task is bound to one worker: Dask would otherwise restart the task of a dead worker on another
one, up to three times. A task whose worker is gone is given back, and its caller decides.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import Any, Generic, TypeVar
from uuid import UUID

import distributed
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker
from prefect.client.schemas.objects import State
from prefect_dask.task_runners import PrefectDaskFuture

from prefect_tune.flows.running.interrupts import check_interrupted
from prefect_tune.flows.wording.text import counted
from prefect_tune.flows.workers.worker_process import WorkerProcesses
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.sandbox.dask_runner import DaskTask, LeanDaskTaskRunner
from prefect_tune.tasks.sandbox.sandbox import SANDBOXES, Limits
from prefect_tune.tasks.trial.evaluate import INDEX_MACHINE, worker_environment


async def environment_of_sandbox(context: StudyContext) -> Mapping[str, Any]:
    """Return the environment of a sandbox of this worker; runs beside the worker's tasks."""
    return await asyncio.to_thread(_environment, context)


def _environment(context: StudyContext) -> Mapping[str, Any]:
    nobody = DaskTask()
    with SANDBOXES.taken(nobody) as sandbox:
        call = sandbox.call(worker_environment, {"context": context}, Limits(), nobody)
        call.next_step()
        found: Mapping[str, Any] = call.value()
        return found


@dataclass(frozen=True, slots=True)
class WorkerCheck:
    """Checks whether workers can run a study's trials and share the flow's environment."""

    scheduler: str
    context: StudyContext
    ours: Mapping[str, Any]

    def __call__(self, client: distributed.Client, addresses: list[str] | None = None) -> list[str]:
        """Check workers, by default all; return the addresses of those that are present.

        Raises `BadInput` if one is unusable.
        """
        answers = client.run(
            environment_of_sandbox, self.context, workers=addresses, on_error="return"
        )
        there = []
        for address, environment in answers.items():
            if isinstance(environment, CommClosedError):  # it has left, and may come back
                continue
            if isinstance(environment, Exception):
                raise BadInput(f"worker {address} cannot run this study: {environment}")
            for name, here in self.ours.items():
                if environment[name] == here:
                    continue
                if name == INDEX_MACHINE:
                    raise BadInput(
                        f"worker {address} runs on another machine, but the store's index is a "
                        "SQLite file, which only processes of one machine can share; use a "
                        "database that all workers reach, with "
                        "--database postgresql+psycopg://user@host/name"
                    )
                there_is = f"worker {address} has {name} {environment[name]}"
                raise BadInput(f"{there_is}; the flow has {here}")
            there.append(address)
        return there


_LOOK_SECONDS = 1.0
_TICK_SECONDS = 0.05
_WAIT_SECONDS = 600.0
"""Longest wait for a worker of an external scheduler if there is none."""
_LOCAL_WAIT_SECONDS = 50.0
"""Longest wait for a worker process of this machine."""
_CHECK_SECONDS = 45.0
"""Longest check of the workers that are present at the start."""
_AGAIN_SECONDS = 60.0
"""Interval after which a worker that failed a check is checked again."""
_RESULT_SECONDS = 2.0
"""Wait for the result of a task that has ended, until its worker is looked for."""


class NoWorkers(StoreLost):
    """No usable worker is left, or there has been none for a long time."""


@dataclass
class Workers:
    """The usable workers, by address, with their threads.

    Args:
        check: Check that each worker has to pass before its first task; None to use all.
        note: Called with notes for the user.
        processes: Worker processes to restart when they end, if they are ours.
    """

    client: distributed.Client
    check: WorkerCheck | None = None
    note: Callable[[str], None] = lambda _: None
    processes: WorkerProcesses | None = None
    threads: Mapping[str, int] = field(default_factory=dict)
    present: Collection[str] = ()
    """Addresses of all workers, also of those that are not used."""
    _refused: set[str] = field(default_factory=set)
    _unfit: dict[str, tuple[float, str]] = field(default_factory=dict)
    """Time and reason of each worker's last failed check."""
    _checks: dict[str, Future[list[str]]] = field(default_factory=dict)
    _checking: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))
    _threads: dict[str, int] = field(default_factory=dict)
    """Threads of all workers at the last look."""
    _updated: float = -_LOOK_SECONDS
    _alone_since: float | None = None

    def check_all(self) -> None:
        """Check the workers that are present; raise `BadInput` if one cannot be used."""
        assert self.check is not None  # noqa: S101 - only external workers are checked
        checked = self._checking.submit(self.check, self.client)
        try:
            there = checked.result(_CHECK_SECONDS)
        except TimeoutError as error:
            raise BadInput(
                f"{self.check.scheduler}: a worker does not answer for {_CHECK_SECONDS:g} s; end "
                "the workers that are stopped"
            ) from error
        self.threads = {a: n for a, n in self._threads_here().items() if a in there}

    def wait_for_all(self, n_slots: int) -> None:
        """Wait for local workers, longest for the first; or raise `NoWorkers`."""
        until = monotonic() + _LOCAL_WAIT_SECONDS / 5
        self.update(at_once=True)
        while sum(self.threads.values()) < n_slots and not (self.threads and monotonic() > until):
            check_interrupted()
            sleep(_TICK_SECONDS)
            self.update(at_once=True)

    def update(self, *, at_once: bool = False) -> None:
        """Update the workers if the last update was some time ago.

        Raises `NoWorkers` if there has been no worker for a long time.
        """
        if monotonic() - self._updated < _LOOK_SECONDS and not at_once:
            return
        self._updated = monotonic()
        if self.processes is not None:
            self.processes.restart()
        for address, check in [(a, c) for a, c in self._checks.items() if c.done()]:
            del self._checks[address]
            try:
                there = check.result()
            except BadInput as error:
                known = self._unfit.get(address, (0.0, ""))[1]
                self._unfit[address] = (monotonic(), str(error))
                if str(error) != known:
                    self.note(f"{error}; the worker is not used")
            except Exception:  # it has left, or will be checked again
                self._unfit[address] = (monotonic(), "")
            else:
                self.threads = {**self.threads, **dict.fromkeys(there, 1)}  # threads follow
                if there:  # else it has left meanwhile
                    total = counted(len(self.threads), "worker")
                    self.note(f"worker {address} joined; {total} in total")
        here = self._threads_here()
        left = [a for a in self.threads if a not in here]
        usable = {a for a in here if self.check is None or a in self.threads}
        self.threads = {a: n for a, n in here.items() if a in usable - self._refused}
        if left:
            remaining = counted(len(self.threads), "worker")
            self.note(f"{counted(len(left), 'worker')} gone; {remaining} remaining")
        for address in here.keys() - self.threads.keys() - self._refused - self._checks.keys():
            failed, _ = self._unfit.get(address, (-_AGAIN_SECONDS, ""))
            if self.check is not None and monotonic() - failed >= _AGAIN_SECONDS:
                check = self._checking.submit(self.check, self.client, [address])
                self._checks[address] = check
        now = monotonic()
        if self.threads:
            self._alone_since = None
            return
        if self._alone_since is None:
            self._alone_since = now
            if self.check is not None:
                self.note(f"waiting for a worker: {self.check.scheduler} has none for the study")
        if now - self._alone_since > (_LOCAL_WAIT_SECONDS if self.check is None else _WAIT_SECONDS):
            where, remedy = "this machine", "free some memory or use fewer --workers"
            if self.check is not None:
                where, remedy = self.check.scheduler, "start some with `dask worker`"
            raise NoWorkers(
                f"{where} has had no worker for the study for {now - self._alone_since:.0f} s; "
                f"{remedy}, then rerun the command to resume"
            )

    def refuse(self, address: str) -> int:
        """Stop using a worker; return how many are left."""
        self._refused.add(address)
        self.threads = {a: n for a, n in self.threads.items() if a != address}
        return len(self.threads)

    def close(self) -> None:
        """Start no more checks."""
        self._checking.shutdown(wait=False, cancel_futures=True)

    def _threads_here(self) -> dict[str, int]:
        if self.client.status == "closed":
            raise NoWorkers("the Dask scheduler no longer answers; rerun the command to resume")
        with suppress(OSError):  # the scheduler may be away for a moment
            # `scheduler_info` may answer without workers, as the client's own look has none.
            self._threads = dict(self.client.nthreads())
        self.present = frozenset(self._threads)
        return self._threads


class WorkerPool:
    """Slots on workers: one per thread, at most `max_slots`."""

    def __init__(self, runner: LeanDaskTaskRunner, max_slots: int | None, workers: Workers) -> None:
        self._runner, self._max_slots, self.workers = runner, max_slots, workers
        self._placed: dict[str, str] = {}
        """Addresses of the running tasks, by key."""

    @property
    def client(self) -> distributed.Client:
        """Client of the scheduler."""
        return self._runner.client

    @property
    def n_slots(self) -> int:
        """Concurrent tasks."""
        n_threads = sum(self.workers.threads.values())
        return n_threads if self._max_slots is None else min(self._max_slots, n_threads)

    def submit(self, task: Any, parameters: Mapping[str, Any]) -> PrefectDaskFuture[Any]:
        """Submit one run of a Prefect task to the least busy worker; or raise `NoWorkers`."""
        while True:
            self.workers.update()
            busy = self.client.processing()  # of all workers that are there now
            if threads := {a: n for a, n in self.workers.threads.items() if a in busy}:
                break
            check_interrupted()
            sleep(_TICK_SECONDS)

        def load(address: str) -> float:
            keys = {key for key, at in self._placed.items() if at == address}
            return len(keys.union(busy[address])) / threads[address]

        address = min(threads, key=load)
        future = self._runner.submit_lean(task, parameters, address)
        self._placed[future.wrapped_future.key] = address
        return future

    def address_of(self, future: PrefectDaskFuture[Any]) -> str:
        """Return the address of the worker that a task was submitted to."""
        return self._placed[future.wrapped_future.key]

    def release(self, future: PrefectDaskFuture[Any]) -> None:
        """Forget a task that has ended; Dask would otherwise compute it again."""
        self._placed.pop(future.wrapped_future.key, None)
        future.wrapped_future.release()

    def cancel_stranded(self, future: PrefectDaskFuture[Any]) -> None:
        """Cancel a task whose worker is gone; Dask would wait for the worker for ever."""
        self.workers.update()
        if self.address_of(future) not in self.workers.present:
            future.wrapped_future.cancel(force=True)


Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True)
class SubmittedTask(Generic[Subject]):
    """A running task."""

    subject: Subject
    future: PrefectDaskFuture[Any]
    worker: str
    started: float


@dataclass(frozen=True, slots=True)
class EndedTask(Generic[Subject]):
    """A task that has ended.

    Attributes:
        state: Final state of the task run; None if the task was not run to its end.
        fault: Why the worker could not run the task; empty if the worker is gone.
    """

    task: SubmittedTask[Subject]
    state: State[Any] | None = None
    fault: str = ""


class RunningTasks(Generic[Subject]):
    """Tasks of a flow run that were submitted to workers and not collected yet."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._tasks: dict[UUID, SubmittedTask[Subject]] = {}
        self._done: SimpleQueue[UUID] = SimpleQueue()

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[SubmittedTask[Subject]]:
        return iter(self._tasks.values())

    def submit(self, subject: Subject, task: Any, parameters: Mapping[str, Any]) -> None:
        """Submit a task for a subject."""
        future = self._pool.submit(task, parameters)
        worker = self._pool.address_of(future)
        self._tasks[future.task_run_id] = SubmittedTask(subject, future, worker, monotonic())
        future.wrapped_future.add_done_callback(lambda _: self._done.put(future.task_run_id))

    def collect(self, timeout_seconds: float) -> Iterator[EndedTask[Subject]]:
        """Yield tasks that have ended, waiting at most `timeout_seconds` for the first.

        Tasks whose worker is gone are cancelled, and end as well. Raises `NoWorkers` if there has
        been no worker for a long time.
        """
        check_interrupted()
        for task in self._tasks.values():
            self._pool.cancel_stranded(task.future)
        try:
            done = [self._done.get(timeout=timeout_seconds)]
        except Empty:
            return
        with suppress(Empty):
            while True:
                done.append(self._done.get_nowait())
        for task_run_id in done:
            if task_run_id in self._tasks:  # it may have been cut
                yield self._end(self._tasks.pop(task_run_id))

    def cut(self) -> list[Subject]:
        """Cancel all running tasks, whose workers end them within a moment."""
        cut = list(self._tasks.values())
        self._tasks.clear()
        if cut:
            futures = [task.future.wrapped_future for task in cut]
            self._pool.client.cancel(futures, force=True)
        for task in cut:
            self._pool.release(task.future)
        return [task.subject for task in cut]

    def _end(self, task: SubmittedTask[Subject]) -> EndedTask[Subject]:
        future = task.future.wrapped_future
        try:
            while True:
                try:
                    return EndedTask(task, future.result(_RESULT_SECONDS))
                except TimeoutError:
                    if future.status == "error":  # raised by the task
                        raise
                    self._pool.cancel_stranded(task.future)  # its worker may be gone with it
        except (KilledWorker, CancelledError):
            self._pool.workers.update(at_once=True)  # its slots are no longer there
            return EndedTask(task)
        except Exception as error:  # Prefect or Dask could not start the task there
            return EndedTask(task, fault=f"{type(error).__name__}: {error}")
        finally:
            self._pool.release(task.future)
