"""Tasks that are no trials, run on workers and waited for: refits, measurements."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Crashed
from prefect_dask.task_runners import PrefectDaskFuture

from prefect_tune.flows.workers.nanny_reports import NannyReports
from prefect_tune.flows.workers.reaping import end_task_run, reap
from prefect_tune.flows.workers.worker_pool import WorkerPool
from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.tasks.trial.evaluate import TrialOutcome

_ATTEMPTS = 2
"""How often a job is started whose worker dies."""
_CHECK_SECONDS = 0.5
"""Between two looks at jobs under way."""


@dataclass(frozen=True, slots=True)
class Job:
    """A task that is no trial.

    Attributes:
        task: The task.
        parameters: Its parameters.
        what: What it does, for errors; empty where that is plain.
    """

    task: Any
    parameters: Mapping[str, Any]
    what: str = ""


def run_jobs(
    pool: WorkerPool,
    flow_run_id: UUID,
    jobs: Sequence[Job],
    *,
    reports: NannyReports,
    limit_seconds: float = inf,
    check: Callable[[], None] = lambda: None,
) -> list[Any]:
    """Run jobs, as many side by side as there are slots; one whose worker dies, once more.

    With the first that fails, all others are ended.

    Args:
        pool: The workers, none of which is needed by a trial meanwhile.
        flow_run_id: The flow run that the task runs belong to.
        jobs: What to run, begun in this order.
        reports: What nannies say of jobs that are held to the limits of trials.
        limit_seconds: Longest time that each may take on a worker, whatever its nanny allows.
        check: Called while they run; they are ended when this raises.

    Returns:
        Their results, in their order.

    Raises:
        NoWorkers: If no worker comes back.
        RuntimeError: If the worker of a job died in each attempt.
        TimeoutError: If one takes longer.
        MemoryError: If its nanny ended one that took too much.
        Exception: What a job or `check` raises. (A trial that fails has a result.)
    """
    return _SideBySide(pool, flow_run_id, jobs, reports, limit_seconds, check).run()


@dataclass(frozen=True, slots=True)
class _UnderWay:
    position: int
    attempt: int
    future: PrefectDaskFuture[Any]
    until: float


@dataclass
class _SideBySide:
    """Jobs of one call; its first fields are the arguments of `run_jobs`.

    Attributes:
        waiting: Position and attempt of each job that is to be started.
        under_way: By task run.
        done: Task runs of futures that ended.
        results: By position.
    """

    pool: WorkerPool
    flow_run_id: UUID
    jobs: Sequence[Job]
    reports: NannyReports
    limit_seconds: float
    check: Callable[[], None]
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    under_way: dict[UUID, _UnderWay] = field(default_factory=dict)
    done: SimpleQueue[UUID] = field(default_factory=SimpleQueue)
    results: dict[int, Any] = field(default_factory=dict)

    def run(self) -> list[Any]:
        """Run them all, and return their results."""
        self.waiting.extend((position, 1) for position in range(len(self.jobs)))
        try:
            while self.waiting or self.under_way:
                self._start()
                self._collect()
        except BaseException as error:
            self._end(str(error) or "the flow was interrupted")
            raise
        return [self.results[position] for position in range(len(self.jobs))]

    def _start(self) -> None:
        """Start what waits, as far as there are workers."""
        while self.waiting:
            if not self.under_way:
                self.pool.wait_for_worker(self.check)
            elif len(self.under_way) >= self.pool.count_slots():
                return
            position, attempt = self.waiting.popleft()
            future = self.pool.submit(self.jobs[position].task, self.jobs[position].parameters)
            until = monotonic() + self.limit_seconds
            self.under_way[future.task_run_id] = _UnderWay(position, attempt, future, until)
            self.reports.follow(future.task_run_id, future.wrapped_future)
            future.wrapped_future.add_done_callback(
                lambda _, task_run_id=future.task_run_id: self.done.put(task_run_id)
            )

    def _collect(self) -> None:
        """Take the result of the next job that ends, or look at all after some time."""
        is_short = bool(self.waiting) and self.pool.is_short
        try:
            ended = self.done.get(timeout=self.pool.look_seconds if is_short else _CHECK_SECONDS)
        except Empty:
            pass
        else:
            self._settle(self.under_way.pop(ended))
        if not self.under_way:
            return
        self.check()
        self.pool.check()
        for job in self.under_way.values():
            self.pool.cancel_stranded(job.future)
            if monotonic() > job.until and not job.future.wrapped_future.done():
                raise TimeoutError(f"{self._what(job)}took more than {self.limit_seconds:g} s")

    def _settle(self, ended: _UnderWay) -> None:
        """Take the result of a job that ended; let it wait once more if its worker died."""
        task_run_id = ended.future.task_run_id
        try:
            if ended.future.wrapped_future.status == "finished":
                self.reports.forget(task_run_id)
                self.results[ended.position] = _result(ended.future)
                return
        finally:
            ended.future.wrapped_future.release()
        report = self.reports.wait_for(task_run_id)
        self.pool.note_death(report.worker if report else None)
        message = report.failure.message if report else "the worker process died"
        crashed: State[Any] = Crashed(message=message)
        self._end_run(ended, crashed)
        if report is not None and report.failure.kind != FailureKind.CRASHED:
            error = MemoryError if report.failure.kind == FailureKind.MEMORY else TimeoutError
            raise error(f"{self._what(ended)}{message}")
        if ended.attempt == _ATTEMPTS:
            died = f"the worker process died in {_ATTEMPTS} attempts"
            raise RuntimeError(f"{self._what(ended)}{died}")
        self.waiting.appendleft((ended.position, ended.attempt + 1))

    def _end(self, reason: str) -> None:
        """End all jobs under way together with their processes."""
        if not self.under_way:
            return
        self.pool.end([job.future for job in self.under_way.values()])
        cancelled: State[Any] = Cancelled(message=reason)
        for job in self.under_way.values():
            self.reports.forget(job.future.task_run_id)
            self._end_run(job, cancelled)
            job.future.wrapped_future.release()

    def _end_run(self, job: _UnderWay, state: State[Any]) -> None:
        """Give the task run of a job whose process is gone, and those inside of it, an end."""
        of, task_run_id = self.jobs[job.position], job.future.task_run_id
        end_task_run(
            self.flow_run_id,
            task_run_id,
            of.task,
            of.what or getattr(of.task, "name", "job"),
            state,
        )
        reap(self.flow_run_id, state, of_trials=[task_run_id])

    def _what(self, job: _UnderWay) -> str:
        what = self.jobs[job.position].what
        return f"{what}: " if what else ""


def _result(future: PrefectDaskFuture[Any]) -> Any:
    """Return what a finished job returned, or raise what it raised."""
    state: State[Any] = future.wrapped_future.result()
    data = getattr(state.data, "result", state.data)
    return data if isinstance(data, TrialOutcome) else future.result()
