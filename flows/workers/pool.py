"""The Dask workers that may run tasks of a study, and the tasks that run on these workers.

Each task is bound to one worker, because Dask would restart the task of a dead worker on other
workers up to three times. If the worker of a task has died, the task is returned, and the caller
decides whether to submit the task again.
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
    """Return the environment of a sandbox on this worker, while other tasks may be running."""
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
    """Checks that workers can run a study's trials and have the same environment as the flow."""

    scheduler: str
    context: StudyContext
    ours: Mapping[str, Any]

    def __call__(self, client: distributed.Client, addresses: list[str] | None = None) -> list[str]:
        """Check workers, by default all workers; return the addresses of workers that answered.

        Raises `BadInput` if a worker is unsuitable.
        """
        answers = client.run(
            environment_of_sandbox, self.context, workers=addresses, on_error="return"
        )
        there = []
        for address, environment in answers.items():
            if isinstance(environment, CommClosedError):  # the worker has left, and may come back
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
                differs = f"worker {address} differs from the flow in {name}"
                raise BadInput(f"{differs}: {environment[name]} instead of {here}")
            there.append(address)
        return there


_LOOK_SECONDS = 1.0
_TICK_SECONDS = 0.05
_WAIT_SECONDS = 600.0
"""Longest wait for a worker of an external scheduler."""
_LOCAL_WAIT_SECONDS = 50.0
"""Longest wait for a worker process of this machine."""
_CHECK_SECONDS = 45.0
"""Time limit for the check of the workers that are present at the start."""
_AGAIN_SECONDS = 60.0
"""Interval after which a worker that failed a check is checked again."""
_RESULT_SECONDS = 2.0
"""Maximum wait for the result of an ended task before the worker of the task is checked."""


class NoWorkers(StoreLost):
    """No usable worker is left, or no worker has been usable for a long time."""


@dataclass
class Workers:
    """The usable workers, with their addresses and numbers of threads.

    Args:
        check: Check that each worker must pass before its first task; None to use workers
            unchecked.
        note: Function that receives notes for the user.
        processes: Worker processes that this flow has started and restarts if they end; None if the
            flow started none.
    """

    client: distributed.Client
    check: WorkerCheck | None = None
    note: Callable[[str], None] = lambda _: None
    processes: WorkerProcesses | None = None
    threads: Mapping[str, int] = field(default_factory=dict)
    present: Collection[str] = ()
    """Addresses of all workers, including unused workers."""
    _refused: set[str] = field(default_factory=set)
    _unfit: dict[str, tuple[float, str]] = field(default_factory=dict)
    """Time and reason of each worker's last failed check."""
    _checks: dict[str, Future[list[str]]] = field(default_factory=dict)
    _checking: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))
    _threads: dict[str, int] = field(default_factory=dict)
    """Number of threads of each worker at the last update."""
    _updated: float = -_LOOK_SECONDS
    _alone_since: float | None = None

    def check_all(self) -> None:
        """Check all present workers; raise `BadInput` if a worker is unsuitable."""
        assert self.check is not None  # noqa: S101 - only external workers are checked
        checked = self._checking.submit(self.check, self.client)
        try:
            there = checked.result(_CHECK_SECONDS)
        except TimeoutError as error:
            raise BadInput(
                f"{self.check.scheduler}: a worker has not answered for {_CHECK_SECONDS:g} s; end "
                "workers that are suspended"
            ) from error
        self.threads = {a: n for a, n in self._threads_here().items() if a in there}

    def wait_for_all(self, n_slots: int) -> None:
        """Wait for local workers; after 10 s, one worker is enough. May raise `NoWorkers`."""
        until = monotonic() + _LOCAL_WAIT_SECONDS / 5
        self.update(at_once=True)
        while sum(self.threads.values()) < n_slots and not (self.threads and monotonic() > until):
            check_interrupted()
            sleep(_TICK_SECONDS)
            self.update(at_once=True)

    def update(self, *, at_once: bool = False) -> None:
        """Update the list of workers, unless it was updated a moment ago.

        Raises `NoWorkers` if no worker has been usable for a long time.
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
            except Exception:  # the worker has left, or will be checked again
                self._unfit[address] = (monotonic(), "")
            else:
                self.threads = {**self.threads, **dict.fromkeys(there, 1)}  # corrected below
                if there:  # empty if the worker has left again
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
                self.note(f"waiting for workers: {self.check.scheduler} has no usable worker")
        if now - self._alone_since > (_LOCAL_WAIT_SECONDS if self.check is None else _WAIT_SECONDS):
            where, remedy = "this machine", "free some memory or use fewer --workers"
            if self.check is not None:
                where, remedy = self.check.scheduler, "start workers with `dask worker`"
            raise NoWorkers(
                f"{where} has had no usable worker for {now - self._alone_since:.0f} s; {remedy}, "
                "then rerun the command to resume"
            )

    def refuse(self, address: str) -> int:
        """Stop using a worker; return the number of remaining workers."""
        self._refused.add(address)
        self.threads = {a: n for a, n in self.threads.items() if a != address}
        return len(self.threads)

    def close(self) -> None:
        """Stop checking workers, and cancel checks that have not started."""
        self._checking.shutdown(wait=False, cancel_futures=True)

    def _threads_here(self) -> dict[str, int]:
        if self.client.status == "closed":
            raise NoWorkers("the Dask scheduler no longer answers; rerun the command to resume")
        with suppress(OSError):  # the scheduler may be briefly unreachable
            # not `scheduler_info`, which may answer without any workers
            self._threads = dict(self.client.nthreads())
        self.present = frozenset(self._threads)
        return self._threads


class WorkerPool:
    """Slots for tasks: one slot per worker thread, at most `max_slots`."""

    def __init__(self, runner: LeanDaskTaskRunner, max_slots: int | None, workers: Workers) -> None:
        self._runner, self._max_slots, self.workers = runner, max_slots, workers
        self._placed: dict[str, str] = {}
        """Worker addresses of the running tasks, by task key."""

    @property
    def client(self) -> distributed.Client:
        """Dask client that is connected to the scheduler."""
        return self._runner.client

    @property
    def n_slots(self) -> int:
        """Number of tasks that can run at the same time."""
        n_threads = sum(self.workers.threads.values())
        return n_threads if self._max_slots is None else min(self._max_slots, n_threads)

    def submit(self, task: Any, parameters: Mapping[str, Any]) -> PrefectDaskFuture[Any]:
        """Submit a run of a Prefect task to the least busy worker. May raise `NoWorkers`."""
        while True:
            self.workers.update()
            busy = self.client.processing()  # for all workers that are present now
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
        """Return the address of the worker to which a task was submitted."""
        return self._placed[future.wrapped_future.key]

    def release(self, future: PrefectDaskFuture[Any]) -> None:
        """Forget an ended task, to keep Dask from computing the task again."""
        self._placed.pop(future.wrapped_future.key, None)
        future.wrapped_future.release()

    def cancel_stranded(self, future: PrefectDaskFuture[Any]) -> None:
        """Cancel a task whose worker has died, to keep Dask from waiting for the worker forever."""
        self.workers.update()
        if self.address_of(future) not in self.workers.present:
            future.wrapped_future.cancel(force=True)


Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True)
class SubmittedTask(Generic[Subject]):
    """A task that was submitted to a worker."""

    subject: Subject
    future: PrefectDaskFuture[Any]
    worker: str
    started: float


@dataclass(frozen=True, slots=True)
class EndedTask(Generic[Subject]):
    """A task that has ended.

    Attributes:
        state: Final state of the task run; None if the task did not finish.
        fault: Reason why the worker could not run the task; empty if the worker has died.
    """

    task: SubmittedTask[Subject]
    state: State[Any] | None = None
    fault: str = ""


class RunningTasks(Generic[Subject]):
    """Tasks of a flow run that were submitted to workers and not yet collected."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._tasks: dict[UUID, SubmittedTask[Subject]] = {}
        self._done: SimpleQueue[UUID] = SimpleQueue()

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[SubmittedTask[Subject]]:
        return iter(self._tasks.values())

    def submit(self, subject: Subject, task: Any, parameters: Mapping[str, Any]) -> None:
        """Submit a task for `subject`, such as a trial."""
        future = self._pool.submit(task, parameters)
        worker = self._pool.address_of(future)
        self._tasks[future.task_run_id] = SubmittedTask(subject, future, worker, monotonic())
        future.wrapped_future.add_done_callback(lambda _: self._done.put(future.task_run_id))

    def collect(self, timeout_seconds: float) -> Iterator[EndedTask[Subject]]:
        """Yield ended tasks, after waiting at most `timeout_seconds` for the first task.

        Tasks whose worker has died are cancelled and yielded as well. Raises `NoWorkers` if no
        worker has been usable for a long time.
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
            if task_run_id in self._tasks:  # the task may have been cancelled
                yield self._end(self._tasks.pop(task_run_id))

    def cut(self) -> list[Subject]:
        """Cancel all running tasks, which end on their workers a moment later."""
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
                    self._pool.cancel_stranded(task.future)  # the worker may also have died
        except (KilledWorker, CancelledError):
            self._pool.workers.update(at_once=True)  # drops the slots of the dead worker
            return EndedTask(task)
        except Exception as error:  # Prefect or Dask could not start the task
            return EndedTask(task, fault=f"{type(error).__name__}: {error}")
        finally:
            self._pool.release(task.future)
