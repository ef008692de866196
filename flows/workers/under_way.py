"""Tasks on workers from submission to their end: trials of a search, and jobs.

If a worker dies, Dask reports only that it is gone, and Prefect notices nothing. This module
therefore waits for the nanny's report and sets the final states of task runs.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Generic, TypeVar
from uuid import UUID

from prefect.client.schemas.objects import State
from prefect.states import Cancelled
from prefect_dask.task_runners import PrefectDaskFuture

from prefect_tune.flows.interrupts import check_interrupted
from prefect_tune.flows.workers.nanny_reports import NannyReport, NannyReports
from prefect_tune.flows.workers.task_run_states import close_open_runs, end_task_run
from prefect_tune.flows.workers.worker_pool import WorkerPool
from prefect_tune.tasks.worker.dask_runner import WorkerFault

_LOGGER = logging.getLogger(__name__)

Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True)
class SubmittedTask(Generic[Subject]):
    """A running task."""

    subject: Subject
    task: Any
    name: str
    future: PrefectDaskFuture[Any]
    started: float

    @property
    def task_run_id(self) -> UUID:
        """Id of the task run."""
        return self.future.task_run_id


@dataclass(frozen=True, slots=True)
class EndedTask(Generic[Subject]):
    """A task that has ended.

    Attributes:
        fault: Fault of a worker that is still running; None if there was none.
        report: Nanny's report on a worker that died or was killed; None if there is none.
    """

    task: SubmittedTask[Subject]
    state: State[Any] | None = None
    fault: WorkerFault | None = None
    report: NannyReport | None = None


class TasksUnderWay(Generic[Subject]):
    """Tasks of a flow run that were submitted to workers and not collected yet."""

    def __init__(self, pool: WorkerPool, flow_run_id: UUID, reports: NannyReports) -> None:
        self._pool, self._flow_run_id, self._reports = pool, flow_run_id, reports
        self._tasks: dict[UUID, SubmittedTask[Subject]] = {}
        self._done: SimpleQueue[tuple[UUID, float]] = SimpleQueue()

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[SubmittedTask[Subject]]:
        return iter(self._tasks.values())

    def submit(
        self,
        subject: Subject,
        task: Any,
        parameters: Mapping[str, Any],
        name: str,
        preferred: str | None = None,
    ) -> None:
        """Submit a task for a subject, to the `preferred` worker address if it is free.

        `name` is used for the task run if the Prefect server has not recorded the run by its end.
        """
        future = self._pool.submit(task, parameters, preferred)
        task_run_id = future.task_run_id
        self._tasks[task_run_id] = SubmittedTask(subject, task, name, future, monotonic())
        self._reports.follow(task_run_id, future.wrapped_future)
        future.wrapped_future.add_done_callback(
            lambda _: self._done.put((task_run_id, monotonic()))
        )

    def collect(self, timeout_seconds: float) -> Iterator[EndedTask[Subject]]:
        """Yield tasks that have ended, waiting at most `timeout_seconds` for the first.

        If none has ended, tasks whose only worker is gone are cancelled, to end in a later call.
        Raises `NoWorkers` if no local worker could be started for a long time.
        """
        check_interrupted()
        self._pool.check()
        if self._pool.is_short:
            timeout_seconds = min(timeout_seconds, self._pool.look_seconds)
        try:
            done = [self._done.get(timeout=timeout_seconds)]
        except Empty:
            for task in self._tasks.values():
                self._pool.cancel_stranded(task.future)
            return
        with suppress(Empty):
            while True:
                done.append(self._done.get_nowait())
        for task_run_id, at in done:
            if task_run_id in self._tasks:  # it may have been cut
                yield self._end(self._tasks.pop(task_run_id), at)

    def cut(self, reason: str) -> list[Subject]:
        """End all running tasks by killing their worker processes, which restart."""
        cut = list(self._tasks.values())
        self._tasks.clear()
        if not cut:
            return []
        self._pool.end([task.future for task in cut])
        for task in cut:
            self._reports.forget(task.task_run_id)
            task.future.wrapped_future.release()
        self.settle(cut, Cancelled(message=reason))
        return [task.subject for task in cut]

    def settle(self, tasks: Sequence[SubmittedTask[Subject]], state: State[Any]) -> None:
        """Set the final state of task runs whose process is gone, and of their child runs."""
        for task in tasks:
            end_task_run(self._flow_run_id, task.task_run_id, task.task, task.name, state)
        close_open_runs(self._flow_run_id, state, of_trials=[task.task_run_id for task in tasks])

    def _end(self, task: SubmittedTask[Subject], at: float) -> EndedTask[Subject]:
        try:
            state: State[Any] = task.future.wrapped_future.result()
        except WorkerFault as fault:
            self._reports.forget(task.task_run_id)
            return EndedTask(task, fault=fault)
        except (Exception, CancelledError) as error:  # its worker died or was killed
            _LOGGER.info(f"{task.name} was lost: {error}")
            report = self._reports.wait_for(task.task_run_id, at)
            self._pool.note_death(report.worker if report else None)
            return EndedTask(task, report=report)
        finally:
            # Else Dask computes it again when a worker dies.
            task.future.wrapped_future.release()
        self._reports.forget(task.task_run_id)
        return EndedTask(task, state)
