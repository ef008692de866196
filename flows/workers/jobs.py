"""Jobs: tasks other than trials, such as refits, that run on workers and are waited for."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Any
from uuid import UUID

from prefect.states import Crashed

from prefect_tune.flows.workers.nanny_reports import NannyReports
from prefect_tune.flows.workers.under_way import EndedTask, TasksUnderWay
from prefect_tune.flows.workers.worker_pool import WorkerPool
from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.tasks.trial.evaluate import TrialOutcome

_ATTEMPTS = 2
"""Number of starts of a job whose worker dies."""
_CHECK_SECONDS = 0.5
"""Interval between checks of running jobs."""


@dataclass(frozen=True, slots=True)
class Job:
    """A task other than a trial; `what` is the subject of its error messages."""

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
    """Run jobs, one per slot at once, and return their results in order.

    A job is repeated once if its worker dies. The first failure ends all other jobs, as does an
    error raised by `check`, which is called repeatedly. Trials must not use the workers meanwhile.
    Raises `NoWorkers` if no worker comes back, `RuntimeError` if a job's worker died in each
    attempt, `TimeoutError` or `MemoryError` if it exceeds a limit, and errors of jobs or `check`.
    """
    under_way: TasksUnderWay[_Attempt] = TasksUnderWay(pool, flow_run_id, reports)
    return _SideBySide(pool, under_way, jobs, limit_seconds, check).run()


@dataclass(frozen=True, slots=True)
class _Attempt:
    position: int
    number: int = 1


@dataclass
class _SideBySide:
    """State of one call of `run_jobs`: attempts to start, and results by position."""

    pool: WorkerPool
    under_way: TasksUnderWay[_Attempt]
    jobs: Sequence[Job]
    limit_seconds: float
    check: Callable[[], None]
    waiting: deque[_Attempt] = field(default_factory=deque)
    results: dict[int, Any] = field(default_factory=dict)

    def run(self) -> list[Any]:
        self.waiting.extend(_Attempt(position) for position in range(len(self.jobs)))
        try:
            while self.waiting or self.under_way:
                self._start()
                for ended in self.under_way.collect(_CHECK_SECONDS):
                    self._settle(ended)
                self._check()
        except BaseException as error:
            self.under_way.cut(str(error) or "the flow was interrupted")
            raise
        return [self.results[position] for position in range(len(self.jobs))]

    def _start(self) -> None:
        while self.waiting:
            if not self.under_way:
                self.pool.wait_for_worker(self.check)
            elif len(self.under_way) >= self.pool.count_slots():
                return
            attempt = self.waiting.popleft()
            job = self.jobs[attempt.position]
            name = job.what or getattr(job.task, "name", "job")
            self.under_way.submit(attempt, job.task, job.parameters, name)

    def _check(self) -> None:
        if self.under_way:
            self.check()
        for task in self.under_way:
            is_late = monotonic() > task.started + self.limit_seconds
            if is_late and not task.future.wrapped_future.done():
                what = self._what(task.subject)
                raise TimeoutError(f"{what}took more than {self.limit_seconds:g} s")

    def _settle(self, ended: EndedTask[_Attempt]) -> None:
        attempt, report = ended.task.subject, ended.report
        if ended.state is not None:
            data = getattr(ended.state.data, "result", ended.state.data)
            if not isinstance(data, TrialOutcome):
                # As a Prefect future does, whatever event loop runs in this thread.
                data = ended.state.result(_sync=True)  # type: ignore[call-overload]
            self.results[attempt.position] = data
            return
        if ended.fault is not None:
            message = ended.fault.reason
        else:
            message = report.failure.message if report else "the worker process died"
        self.under_way.settle([ended.task], Crashed(message=message))
        if report is not None and report.failure.kind != FailureKind.CRASHED:
            error = MemoryError if report.failure.kind == FailureKind.MEMORY else TimeoutError
            raise error(f"{self._what(attempt)}{message}")
        if attempt.number == _ATTEMPTS:
            died = f"the worker process died in {_ATTEMPTS} attempts"
            raise RuntimeError(f"{self._what(attempt)}{message if ended.fault else died}")
        self.waiting.appendleft(_Attempt(attempt.position, attempt.number + 1))

    def _what(self, attempt: _Attempt) -> str:
        what = self.jobs[attempt.position].what
        return f"{what}: " if what else ""
