"""Trials on Dask workers: submits trials, collects outcomes, and stops trials when necessary.

If the worker of a trial has died, the trial is returned without an outcome.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import inf
from time import monotonic
from typing import Any
from uuid import UUID

import distributed
from dask.system import CPU_COUNT
from prefect.client.schemas.objects import State

from prefect_tune.flows.study.progress import RunningTrial
from prefect_tune.flows.workers.clusters import started_pool
from prefect_tune.flows.workers.pool import EndedTask, RunningTasks, WorkerPool
from prefect_tune.optimizers.trials.outcome import Failure, FailureKind
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.masking import masked
from prefect_tune.storage.notices import Notice, relay
from prefect_tune.tasks.prefect_tasks import evaluate
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.sandbox.dask_runner import TOPIC, end_sandboxes
from prefect_tune.tasks.sandbox.output import NOTHING, Printed
from prefect_tune.tasks.trial.evaluate import Report, TrialOutcome

_ATTEMPTS = 2
"""Number of starts of a job whose worker dies."""
_OF_ENDED_CALLS = (TimeoutError, MemoryError, RuntimeError)
"""Errors of a call whose process was ended. Jobs themselves raise errors of other types."""
_CHECK_SECONDS = 0.5
"""Interval between checks of running jobs."""


@dataclass(frozen=True, slots=True)
class Job:
    """A task other than a trial. `what` names the job in error messages."""

    task: Any
    parameters: Mapping[str, Any]
    what: str = ""

    def named(self, message: str) -> str:
        """Return an error message that names the job."""
        return f"{self.what}: {message}" if self.what else message


def _result(state: State[Any], job: Job) -> Any:
    data = getattr(state.data, "result", state.data)
    if isinstance(data, TrialOutcome):
        return data
    # As in Prefect's futures; works with any event loop in this thread.
    try:
        return state.result(_sync=True)  # type: ignore[call-overload]
    except _OF_ENDED_CALLS as error:
        if not job.what or type(error) not in _OF_ENDED_CALLS:
            raise
        raise type(error)(job.named(str(error))) from error


DIED = "its worker died"


@dataclass(frozen=True, slots=True)
class Ended:
    """A trial that is no longer running.

    Attributes:
        outcome: Outcome of the trial; None if its worker died.
        seconds: Time since the trial was started.
    """

    trial: Trial
    outcome: TrialOutcome | None
    seconds: float = 0.0
    task_run_id: str = ""
    printed: Printed = NOTHING


@dataclass(frozen=True, slots=True)
class _Run:
    trial: Trial
    limit_seconds: float
    n_threads: int


class _Steps:
    """Current step of each running trial, by task run, and warnings of workers."""

    def __init__(self, flow_run_id: UUID) -> None:
        self._flow_run = str(flow_run_id)
        self.started: dict[str, tuple[str, int | None, float]] = {}

    @contextmanager
    def received(self, client: distributed.Client) -> Iterator[None]:
        client.subscribe_topic(TOPIC, self._receive)
        try:
            yield
        finally:
            with suppress(Exception):  # the cluster may have ended
                client.unsubscribe_topic(TOPIC)

    async def _receive(self, event: tuple[float, Mapping[str, Any]]) -> None:
        _, message = event
        if message["flow_run"] != self._flow_run:
            return
        if "notice" in message:
            relay(Notice(**{**message["notice"], "flow_run": self._flow_run}))
            return
        started = monotonic() - message["seconds"]
        self.started[message["task_run"]] = message["step"] or "", message["fold"], started


class DaskTrials:
    """Running trials, at most one per slot. Create an instance with `DaskTrials.started`.

    Args:
        cores: Number of cores that concurrent tasks share evenly; 0 for one thread per task, which
            external workers use.
    """

    def __init__(self, pool: WorkerPool, context: StudyContext, steps: _Steps, cores: int) -> None:
        self._pool, self._context, self._steps, self._cores = pool, context, steps, cores
        self.n_task_runs = 0
        self._running: RunningTasks[_Run] = RunningTasks(pool)

    @classmethod
    @contextmanager
    def started(
        cls,
        context: StudyContext,
        flow_run_id: UUID,
        *,
        n_workers: int | None = None,
        n_sharing: int = 1,
        scheduler: str | None = None,
    ) -> Iterator["DaskTrials"]:
        """Start workers for trials with `started_pool`; after the `with` block, stop all trials.

        The cores of this machine are shared evenly by `n_sharing` studies. Raises `BadInput` if the
        scheduler cannot be reached or a worker is unsuitable.
        """
        steps = _Steps(flow_run_id)
        with (
            started_pool(context, n_workers, scheduler) as pool,
            steps.received(pool.client),
        ):
            trials = cls(pool, context, steps, 0 if scheduler else CPU_COUNT // n_sharing)
            try:
                yield trials
            finally:
                trials.cut()
                if scheduler or n_sharing == 1:  # otherwise other studies use the same sandboxes
                    with suppress(Exception):  # a worker may have left
                        pool.client.run(end_sandboxes, on_error="ignore")

    @property
    def n_slots(self) -> int:
        """Number of trials that can run at the same time."""
        return self._pool.n_slots

    @property
    def n_running(self) -> int:
        """Number of running trials."""
        return len(self._running)

    @property
    def running_trials(self) -> tuple[RunningTrial, ...]:
        """Progress of each running trial."""
        now, running = monotonic(), []
        for task in self._running:
            none = "", None, task.started
            step, fold, started = self._steps.started.get(str(task.future.task_run_id), none)
            trial, limit_seconds = task.subject.trial, task.subject.limit_seconds
            path, seconds = trial.query.configuration.path, max(now - started, 0.0)
            running.append(RunningTrial(trial.number, path, seconds, limit_seconds, step, fold))
        return tuple(running)

    def has_room(self, n_begun: int = 0) -> bool:
        """Return whether a slot is free in addition to the slots of `n_begun` unsubmitted trials.

        Raises `NoWorkers` after a long time without workers.
        """
        self._pool.workers.update()
        return self.n_running + n_begun < self.n_slots

    def submit(
        self,
        trial: Trial,
        report: Report,
        limit_seconds: float | None = None,
        *,
        pilot_seconds: float | None = None,
        n_following: int = 0,
        training_seconds: float = inf,
    ) -> None:
        """Start a trial in a free slot of the workers.

        The trial shares the free cores with the `n_following` trials that are submitted next, and
        keeps its number of threads to the end.

        `report` selects the steps that become task runs. If `limit_seconds` is None, the study's
        time limit applies. If `pilot_seconds` is given, the trial is only run if a pilot predicts
        at most this duration. Boosted trees with early stopping get no more rounds after
        `training_seconds` per fold.
        """
        n_threads = self._threads(self.n_running + 1 + n_following)
        n_free = self._cores - sum(task.subject.n_threads for task in self._running)
        n_threads = max(min(n_threads, n_free), 1)
        context = replace(self._context, most_threads=n_threads, training_seconds=training_seconds)
        parameters = {
            "number": trial.number,
            "query": trial.query.to_json(),
            "context": context,
            "report": report,
            "limit_seconds": limit_seconds,
            "pilot_seconds": pilot_seconds,
        }
        seconds = self._context.trial_seconds if limit_seconds is None else limit_seconds
        self._running.submit(_Run(trial, seconds, n_threads), evaluate, parameters)

    def bench(self, worker: str) -> int:
        """Stop using a worker; return the number of remaining workers."""
        return self._pool.workers.refuse(worker)

    def collect(self, timeout_seconds: float) -> list[Ended]:
        """Return trials that have ended, after waiting at most `timeout_seconds` for the first."""
        return [self._end(ended) for ended in self._running.collect(timeout_seconds)]

    def cut(self) -> list[Trial]:
        """Stop all running trials, which may take a moment; return the trials."""
        return [run.trial for run in self._running.cut()]

    def run(
        self,
        task: Any,
        parameters: Mapping[str, Any],
        *,
        limit_seconds: float = inf,
        check: Callable[[], None] = lambda: None,
    ) -> Any:
        """Run a single task that is not a trial, in the same way as `run_all`."""
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
        """Run tasks that are not trials, one task per slot; return their results in order.

        No trial may be running, because the tasks share all cores. If the worker of a job dies, the
        job is repeated once. `check` is called repeatedly. The first error of a job or of `check`
        ends all jobs and is raised. Raises `NoWorkers` if no worker comes back, `RuntimeError` if
        the worker of a job dies in each attempt, and `TimeoutError` or `MemoryError` if a job
        exceeds a limit.
        """
        n_at_once = min(len(jobs), self._pool.n_slots)
        tasks: RunningTasks[int] = RunningTasks(self._pool)
        waiting, attempts = deque(range(len(jobs))), [0] * len(jobs)
        results: dict[int, Any] = {}
        try:
            while waiting or tasks:
                while waiting and len(tasks) < max(self._pool.n_slots, 1):
                    position = waiting.popleft()
                    attempts[position] += 1
                    job, parameters = jobs[position], dict(jobs[position].parameters)
                    if context := parameters.get("context"):
                        n_threads = self._threads(n_at_once)
                        parameters["context"] = replace(context, most_threads=n_threads)
                    tasks.submit(position, job.task, parameters)
                for ended in tasks.collect(_CHECK_SECONDS):
                    position = ended.task.subject
                    if ended.state is not None:
                        results[position] = _result(ended.state, jobs[position])
                    elif attempts[position] < _ATTEMPTS:
                        waiting.appendleft(position)
                    else:
                        died = f"the worker died in each of {_ATTEMPTS} attempts"
                        text = jobs[position].named(ended.fault or died)
                        raise RuntimeError(text)  # noqa: TRY301 - ends all jobs, like any error
                check()
                for task in tasks:
                    is_late = monotonic() > task.started + limit_seconds
                    if is_late and not task.future.wrapped_future.done():
                        message = f"took more than {limit_seconds:g} s"
                        text = jobs[task.subject].named(message)
                        raise TimeoutError(text)  # noqa: TRY301 - as above
        except BaseException:
            tasks.cut()
            raise
        in_order = [results[position] for position in range(len(jobs))]
        self.n_task_runs += sum(getattr(result, "n_task_runs", 0) for result in in_order)
        return [getattr(result, "value", result) for result in in_order]

    def _threads(self, n_at_once: int) -> int:
        return max(self._cores // max(n_at_once, 1), 1)

    def _end(self, ended: EndedTask[_Run]) -> Ended:
        task, trial = ended.task, ended.task.subject.trial
        task_run_id, seconds = str(task.future.task_run_id), monotonic() - task.started
        self._steps.started.pop(task_run_id, None)
        if ended.fault:
            self.n_task_runs += 1
            return Ended(trial, TrialOutcome(lost=masked(ended.fault), worker=task.worker))
        if ended.state is None:
            return Ended(trial, None, seconds, task_run_id)
        outcome = getattr(ended.state.data, "result", ended.state.data)
        if not isinstance(outcome, TrialOutcome):  # an error inside Prefect
            message = masked(str(ended.state.message))
            outcome = TrialOutcome(
                failure=Failure(FailureKind.ERROR, message, cost_seconds=seconds)
            )
        self.n_task_runs += outcome.n_task_runs
        return Ended(trial, outcome, seconds, task_run_id, outcome.printed)
