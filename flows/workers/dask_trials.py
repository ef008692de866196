"""Trials on Dask workers: submits them one by one, collects outcomes, and cuts trials if necessary.

A trial whose worker is gone is returned with a failure. Local workers die together with their fork
server. If a trial's code kills the fork server, all running trials lose their workers. The search
then waits until no trial is running and reruns the affected trials one by one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from math import inf
from threading import Lock
from time import monotonic
from typing import Any
from uuid import UUID

import distributed
from dask.system import CPU_COUNT
from prefect.client.schemas.objects import State
from prefect.states import Crashed, Failed

from prefect_tune.flows.progress import RunningTrial
from prefect_tune.flows.workers.clusters import started_pool
from prefect_tune.flows.workers.jobs import Job, run_jobs
from prefect_tune.flows.workers.nanny_reports import NannyReport, NannyReports, enforce_limits
from prefect_tune.flows.workers.under_way import EndedTask, SubmittedTask, TasksUnderWay
from prefect_tune.flows.workers.worker_pool import WorkerPool
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.trials.outcome import Failure, FailureKind
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.masking import masked
from prefect_tune.storage.notices import Notice, relay
from prefect_tune.tasks.problem import StudyContext, TrialLimits
from prefect_tune.tasks.trial.evaluate import Report, TrialOutcome, evaluate, failure_message
from prefect_tune.tasks.worker.printed_output import NOTHING, Printed
from prefect_tune.tasks.worker.readiness import make_ready
from prefect_tune.tasks.worker.trial_note import notice_topic

_TURN_SECONDS = 2.0
"""Time a search has to start a trial before another search gets its turn."""


class Isolation:
    """Trials of all searches that share workers; suspected killers of workers run alone."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: set[tuple[int, int]] = set()
        self._suspects: set[tuple[int, int]] = set()
        self._turn: tuple[int, float] = (0, 0.0)

    def admits(self, search: int) -> bool:
        """Return whether a search may start a trial now; if so, it should start one at once."""
        with self._lock:
            if not self._suspects:
                return True
            holder, until = self._turn
            if self._running or (holder != search and monotonic() < until):
                return False
            self._turn = search, monotonic() + _TURN_SECONDS
            return True

    def start(self, search: int, number: int) -> bool:
        """Record that a trial has started; return whether it runs alone as a suspect."""
        with self._lock:
            self._running.add((search, number))
            return bool(self._suspects)

    def end(self, search: int, number: int, *, is_suspect: bool = False) -> None:
        """Record that a trial ended; a suspect is a trial that ended with the fork server."""
        with self._lock:
            self._running.discard((search, number))
            if is_suspect:
                self._suspects.add((search, number))
            else:
                self._suspects.discard((search, number))

    def forget(self, search: int) -> None:
        """Forget the trials of a search that has ended."""
        with self._lock:
            self._running = {trial for trial in self._running if trial[0] != search}
            self._suspects = {trial for trial in self._suspects if trial[0] != search}


@contextmanager
def notices_received(client: distributed.Client, flow_run_id: UUID) -> Iterator[None]:
    """Relay the warnings that workers send during the body."""
    topic = notice_topic(str(flow_run_id))
    client.subscribe_topic(topic, _receive)
    try:
        yield
    finally:
        with suppress(Exception):  # the cluster may be gone
            client.unsubscribe_topic(topic)


async def _receive(event: tuple[float, Mapping[str, Any]]) -> None:
    message = event[1]  # Dask adds fields of its own, such as the worker's address
    relay(Notice(**{field.name: message[field.name] for field in fields(Notice)}))


_MOST_LEFT = 3
"""Number of workers that may leave while running a trial before the trial is blamed."""
_MOST_RAN = 1_000
"""Number of configurations whose last worker is remembered; workers rarely keep older ones."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A trial that is no longer running.

    Attributes:
        outcome: Outcome from the worker; None if the worker died or was killed.
        failure: Reason for the worker's death; None if there is an outcome.
        worker_left: Whether the worker left its scheduler or never began; not the trial's fault.
    """

    trial: Trial
    outcome: TrialOutcome | None
    failure: Failure | None = None
    worker_left: bool = False
    task_run_id: str = ""
    printed: Printed = NOTHING


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of a trial, and the number of deaths of the fork server before it."""

    trial: Trial
    limit_seconds: float
    n_server_deaths: int
    is_alone: bool


class DaskTrials:
    """Running trials, at most one per slot. Create one with `DaskTrials.started`.

    Args:
        limit_seconds: Default time limit of a trial.
        isolation: Isolation shared with other studies on the same workers; None for a new one.
        cores: Cores that concurrent tasks share evenly as threads; 0 for one thread each, as on
            external workers.
    """

    def __init__(
        self,
        pool: WorkerPool,
        context: StudyContext,
        flow_run_id: UUID,
        reports: NannyReports,
        limit_seconds: float = inf,
        *,
        isolation: Isolation | None = None,
        cores: int = 0,
    ) -> None:
        self._isolation = isolation or Isolation()
        self._cores = cores
        self._pool, self._reports, self._limit_seconds = pool, reports, limit_seconds
        # All trials get the same threads, because their costs are compared.
        self._context = self._sharing_cores(context, pool.n_slots)
        self._flow_run_id = flow_run_id
        self.n_task_runs = 0
        self._under_way: TasksUnderWay[_Run] = TasksUnderWay(pool, flow_run_id, reports)
        self._sharing: list[DaskTrials] = []
        self._ran: dict[Configuration, str] = {}
        self._n_left: dict[int, int] = {}

    @classmethod
    @contextmanager
    def started(
        cls,
        context: StudyContext,
        flow_run_id: UUID,
        limits: TrialLimits,
        *,
        n_workers: int | None = None,
        scheduler: str | None = None,
    ) -> Iterator["DaskTrials"]:
        """Start workers for trials, like `started_pool`; at the end, cut running trials.

        Raises `BadInput` if the scheduler cannot be reached, or one of its workers cannot be used.
        """
        with (
            started_pool(context, limits, n_workers, scheduler) as pool,
            enforce_limits(pool.client, flow_run_id, limits, pool.n_slots) as reports,
            notices_received(pool.client, flow_run_id),
        ):
            cores = 0 if scheduler else CPU_COUNT
            trials = cls(pool, context, flow_run_id, reports, limits.seconds, cores=cores)
            try:
                yield trials
            finally:
                trials.cut("the flow ended")
                pool.drain()

    def prepare_workers(self) -> None:
        """Do the one-time work of each worker now, and allow sharing."""
        self._pool.prepare(partial(make_ready, self._context))

    @contextmanager
    def sharing(self, context: StudyContext) -> Iterator["DaskTrials"]:
        """Yield trials of another study, which run one at a time on one reserved worker.

        Call it after `prepare_workers`, in any thread. If threads outnumber slots, some wait.
        Raises `NoWorkers` if no usable worker is left.
        """
        with self._pool.reserved() as pool:
            other = DaskTrials(
                pool,
                context,
                self._flow_run_id,
                self._reports,
                self._limit_seconds,
                isolation=self._isolation,
                cores=self._cores // max(self.n_slots, 1),
            )
            self._sharing.append(other)
            try:
                yield other
            finally:
                other.cut("its study ended")
                self._isolation.forget(id(other))

    @property
    def n_task_runs_of_all(self) -> int:
        """Task runs of these trials and of all studies that share their workers."""
        return sum(trials.n_task_runs for trials in (self, *self._sharing))

    @property
    def n_slots(self) -> int:
        """Concurrent trials."""
        return self._pool.n_slots

    @property
    def n_shared(self) -> int:
        """Workers that `sharing` can provide, now or later."""
        return self._pool.n_reserved

    @property
    def n_running(self) -> int:
        """Number of running trials."""
        return len(self._under_way)

    @property
    def running_trials(self) -> tuple[RunningTrial, ...]:
        """Progress of each running trial."""
        now = monotonic()
        return tuple(self._running_trial(task, now) for task in self._under_way)

    def has_room(self) -> bool:
        """Return whether a worker is free."""
        return self.n_running < self._pool.count_slots() and self._isolation.admits(id(self))

    def submit(
        self,
        trial: Trial,
        report: Report,
        limit_seconds: float | None = None,
        *,
        pilot_seconds: float | None = None,
    ) -> None:
        """Start a trial on a free worker, preferably the last one that ran its configuration.

        `report` selects the steps that become task runs. Without `limit_seconds`, the nannies'
        limit applies. With `pilot_seconds`, it starts only if a pilot predicts at most that time.
        """
        parameters = {
            "number": trial.number,
            "query": trial.query.to_json(),
            "context": self._context,
            "report": report,
            "limit_seconds": limit_seconds,
            "pilot_seconds": pilot_seconds,
        }
        run = _Run(
            trial,
            self._limit_seconds if limit_seconds is None else limit_seconds,
            n_server_deaths=self._pool.n_server_deaths,
            is_alone=self._isolation.start(id(self), trial.number),
        )
        preferred = self._ran.get(trial.query.configuration)
        self._under_way.submit(run, evaluate, parameters, f"trial {trial.number}", preferred)

    def give_up(self, trial: Trial) -> None:
        """Record that a trial will not be rerun, so that no other trial waits for it."""
        self._isolation.end(id(self), trial.number)

    def bench(self, worker: str) -> int:
        """Stop using a worker; return how many are left or will come back."""
        return self._pool.bench(worker)

    def collect(self, timeout_seconds: float) -> list[Ended]:
        """Return trials that have ended, waiting at most `timeout_seconds` for the first."""
        return [self._end(ended) for ended in self._under_way.collect(timeout_seconds)]

    def cut(self, reason: str) -> list[Trial]:
        """End all running trials by killing their worker processes, which restart."""
        trials = [run.trial for run in self._under_way.cut(reason)]
        for trial in trials:
            self._isolation.end(id(self), trial.number)
        return trials

    def run(
        self,
        task: Any,
        parameters: Mapping[str, Any],
        *,
        limit_seconds: float = inf,
        check: Callable[[], None] = lambda: None,
    ) -> Any:
        """Run a task that is not a trial while no trial is running: see `run_jobs`."""
        job = Job(task, parameters)
        (result,) = self.run_all([job], limit_seconds=limit_seconds, check=check)
        return result

    def run_all(
        self,
        jobs: Sequence[Job],
        *,
        limit_seconds: float = inf,
        check: Callable[[], None] = lambda: None,
    ) -> list[Any]:
        """Run tasks that are not trials while no trial is running; they share all cores."""
        n_at_once = min(len(jobs), self.n_slots)
        results = run_jobs(
            self._pool,
            self._flow_run_id,
            [self._job_sharing_cores(job, n_at_once) for job in jobs],
            reports=self._reports,
            limit_seconds=limit_seconds,
            check=check,
        )
        self.n_task_runs += sum(getattr(result, "n_task_runs", 1) for result in results)
        return results

    def _job_sharing_cores(self, job: Job, n_at_once: int) -> Job:
        if "context" not in job.parameters:
            return job
        context = self._sharing_cores(job.parameters["context"], n_at_once)
        return replace(job, parameters={**job.parameters, "context": context})

    def _sharing_cores(self, context: StudyContext, n_at_once: int) -> StudyContext:
        return replace(context, most_threads=max(self._cores // max(n_at_once, 1), 1))

    def _running_trial(self, task: SubmittedTask[_Run], now: float) -> RunningTrial:
        at, run = self._reports.step_of(task.task_run_id), task.subject
        return RunningTrial(
            number=run.trial.number,
            path=run.trial.query.configuration.path,
            seconds=max(now - (at.started if at else task.started), 0.0),
            limit_seconds=run.limit_seconds,
            step=(at.step if at else "") or "",
            fold=at.fold if at else None,
        )

    def _end(self, ended: EndedTask[_Run]) -> Ended:
        self.n_task_runs += 1
        task, trial = ended.task, ended.task.subject.trial
        if ended.fault is not None:
            self._isolation.end(id(self), trial.number)
            self._under_way.settle([task], Crashed(message=ended.fault.reason))
            lost = TrialOutcome(None, None, 1, lost=ended.fault.reason, worker=ended.fault.worker)
            return Ended(trial, lost)
        if ended.state is None:
            return self._end_lost(task, ended.report)
        self._isolation.end(id(self), trial.number)
        outcome = _outcome(ended.state, monotonic() - task.started)
        self.n_task_runs += outcome.n_task_runs - 1
        if outcome.worker:
            _note_worker(self._ran, trial.query.configuration, outcome.worker)
        return Ended(trial, outcome, task_run_id=str(task.task_run_id), printed=outcome.printed)

    def _end_lost(self, task: SubmittedTask[_Run], report: NannyReport | None) -> Ended:
        """Settle a trial whose worker died, using the nanny's report if there is one."""
        lost, number = task.subject, task.subject.trial.number
        printed = NOTHING
        if report is None:
            seconds = monotonic() - task.started
            failure = Failure(FailureKind.CRASHED, "the worker process died", cost_seconds=seconds)
        else:
            failure = report.failure
            printed = self._pool.take_printed(report.nanny, task.task_run_id)
        died_together = self._pool.n_server_deaths > lost.n_server_deaths
        is_suspect = report is not None and died_together and not lost.is_alone
        self._isolation.end(id(self), lost.trial.number, is_suspect=is_suspect)
        message = failure_message(failure, self._context.study, number)
        self._under_way.settle([task], _final_state(failure, message))
        worker_left = False  # the nanny would have reported the death of the worker
        if report is None:
            n_left = self._n_left[number] = self._n_left.get(number, 0) + 1
            worker_left = n_left < _MOST_LEFT
        return Ended(lost.trial, None, failure, worker_left, str(task.task_run_id), printed)


def _note_worker(ran: dict[Configuration, str], configuration: Configuration, worker: str) -> None:
    ran.pop(configuration, None)  # the newest come last
    ran[configuration] = worker
    if len(ran) > _MOST_RAN:
        del ran[next(iter(ran))]


def _outcome(state: State[Any], seconds: float) -> TrialOutcome:
    """Return the outcome in the state of a trial's task run; an error of Prefect is a failure."""
    data = getattr(state.data, "result", state.data)
    if isinstance(data, TrialOutcome):
        return data
    failure = Failure(FailureKind.ERROR, masked(str(state.message)), cost_seconds=seconds)
    return TrialOutcome(None, failure, 1)


def _final_state(failure: Failure, message: str) -> State[Any]:
    if failure.kind == FailureKind.TIMEOUT:
        return Failed(name="TimedOut", message=message)
    return (
        Failed(message=message) if failure.kind == FailureKind.MEMORY else Crashed(message=message)
    )
