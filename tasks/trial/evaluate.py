"""Evaluation of a query: each step in all folds, then the loss on the held-out rows.

Trials and steps are thin Prefect tasks, so that the UI shows them, without Prefect's caching and
persistence. A step served by the cache in every fold ends as Cached.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.context import TaskRunContext
from prefect.states import Completed, Failed

from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.outcome import Evaluation, Failure, FailureKind, Pilot
from prefect_tune.storage.database import DatabaseLost, is_outage
from prefect_tune.storage.files import StoreAway, StoreRefused
from prefect_tune.storage.masking import masked, passwords_in
from prefect_tune.storage.waiting import (
    Begun,
    DiskFull,
    StoreForbidden,
    StoreLost,
    begin,
    through_outage,
    waits_counted,
)
from prefect_tune.tasks.objective.declaration import LossWords
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.threads import one_thread
from prefect_tune.tasks.trial.epochs import IterativeNode
from prefect_tune.tasks.trial.measuring import measure, measure_risks
from prefect_tune.tasks.trial.node import Node
from prefect_tune.tasks.trial.path_run import PathRun, StepFailed, StepOutcome
from prefect_tune.tasks.trial.pilot import WillNotEnd, pilot
from prefect_tune.tasks.user_code import exits_as_errors
from prefect_tune.tasks.worker.printed_output import NOTHING, Printed, trial_captured
from prefect_tune.tasks.worker.readiness import load
from prefect_tune.tasks.worker.trial_note import note_waits, this_worker, trial_noted

SHOWN: Mapping[str, Any] = {
    "cache_policy": NO_CACHE,
    "persist_result": False,
    "retries": 0,  # regardless of Prefect's setting: a failure is an outcome
    "log_prints": False,  # regardless of Prefect's setting: prints belong to the trial
}
"""Options of tasks that Prefect only shows."""


def run_step(
    path_run: PathRun,
    position: int,
    algorithm: str,  # noqa: ARG001 - names the task run
    before: StepOutcome | None,  # noqa: ARG001 - Prefect draws the edge from it
) -> State[StepOutcome]:
    """Run one step of a trial in all folds; `before` gives Prefect an edge from the last step."""
    outcome = path_run.run(position)
    if outcome.is_cached:
        return Completed(name="Cached", message=f"prefix {outcome.keys[0][:12]}", data=outcome)
    cached = f"{outcome.n_cached} of {len(outcome.keys)} folds cached"
    return Completed(message=cached if outcome.n_cached else None, data=outcome)


@cache
def step_task(step: str) -> Callable[..., State[Any]]:
    """Return the Prefect task of a step, named after the step."""
    return task(name=step, task_run_name=f"{step}: {{algorithm}}", **SHOWN)(run_step)


Result = TypeVar("Result")

Report = Literal["steps", "misses", "trial"]
"""Task runs that a trial reports: all steps, steps not served by the cache, or none."""

RunStep = Callable[[PathRun, int, StepOutcome | None], StepOutcome]


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """A worker's answer: an evaluation, a failure, or the reason the study cannot continue.

    Attributes:
        n_task_runs: Task runs reported, the trial's own included.
        lost: Reason the study cannot continue, independent of the trial; empty otherwise.
        worker: Address of the Dask worker; empty without one.
        is_lost_to_all: Whether `lost` holds on every worker, as when the store is full.
        printed: Output of the trial from Python, C libraries and child processes.
    """

    evaluation: Evaluation | None
    failure: Failure | None
    n_task_runs: int
    lost: str = ""
    worker: str = ""
    is_lost_to_all: bool = False
    printed: Printed = NOTHING


def evaluate_query(
    context: StudyContext,
    query: Query,
    run_step: RunStep,
    space: Space | None = None,
    pilot_seconds: float | None = None,
) -> Evaluation | Failure:
    """Evaluate a query on its folds; a failure of the trial is a result, not an exception.

    `pilot_seconds` is the longest duration a pilot may predict for the trial to start; None skips
    the pilot.

    Raises:
        StoreLost: If the store stays unreachable beyond the time of an outage, or the study's
            records are gone or cannot be written.
    """
    return retry_through_outages(
        partial(_evaluated, context, query, run_step, space, pilot_seconds)
    )


def retry_through_outages(work: Callable[[], Result]) -> Result:
    """Repeat work that a store outage interrupted; raises StoreLost after a long outage."""
    try:
        with waits_counted(note_waits):
            return through_outage(work, _is_outage)
    except StoreRefused as error:  # the flow was able to open it
        raise StoreLost(str(error)) from error


def _is_outage(error: BaseException) -> bool:
    return isinstance(error, StoreAway) or (isinstance(error, DatabaseLost) and is_outage(error))


def _evaluated(
    context: StudyContext,
    query: Query,
    run_step: RunStep,
    space: Space | None,
    pilot_seconds: float | None,
) -> Evaluation | Failure:
    begun, load_seconds = begin(), 0.0
    path_run: PathRun | None = None
    shown: Pilot | None = None
    try:
        with exits_as_errors(), one_thread():
            space = space or context.problem.find_space()
            pipeline = space.pipeline(query.configuration.path)
            load_seconds = load(context, (algorithm for _, algorithm in pipeline))
            begun = begin()
            path_run = PathRun(context, query, space=space)
            is_served = path_run.is_served(len(path_run.steps) - 1)
            if pilot_seconds is not None and not is_served and context.epochs is None:
                shown = _pilot(path_run, space, pilot_seconds)
            outcome: StepOutcome | None = None
            with path_run.pinned() if context.use_cache else nullcontext():
                for position in range(len(path_run.steps)):
                    outcome = run_step(path_run, position, outcome)
                evaluation = _evaluation(path_run, begun)
                return replace(evaluation, load_seconds=load_seconds, pilot=shown)
    except Exception as error:
        failed = error if isinstance(error, StepFailed) else None
        cause = failed.__cause__ if failed and failed.__cause__ else error
        if isinstance(cause, StoreLost | StoreRefused):
            raise cause  # noqa: B904 - keeps its own cause
        return Failure(
            kind=_kind(cause),
            message=masked(f"{type(cause).__name__}: {cause}".split("\n", 1)[0]),
            traceback=masked("".join(traceback.format_exception(cause))),
            step=failed.step if failed else None,
            fold=failed.fold if failed else None,
            cost_seconds=begun.own_seconds(),
            steps=path_run.costs() if path_run else (),
            load_seconds=load_seconds,
            pilot=cause.pilot if isinstance(cause, WillNotEnd) else shown,
        )


def _kind(cause: BaseException) -> FailureKind:
    if isinstance(cause, WillNotEnd):
        return FailureKind.TIMEOUT
    return FailureKind.MEMORY if isinstance(cause, MemoryError) else FailureKind.ERROR


def _pilot(path_run: PathRun, space: Space, limit_seconds: float) -> Pilot | None:
    """Return the result of a pilot, or None if the pilot fails; raise WillNotEnd if too slow."""
    begun = begin()
    try:
        shown = pilot(path_run, space, limit_seconds)
    except Exception:  # a pilot may fail for lack of rows
        return None
    shown = replace(shown, own_seconds=begun.own_seconds())
    if shown.is_over_limit:
        raise WillNotEnd(shown)
    return shown


def _evaluation(path_run: PathRun, begun: Begun) -> Evaluation:
    learning = path_run.learning
    models = [path_run.nodes(fold)[-1] for fold in path_run.folds]
    if learning is None:
        losses = _losses(path_run, models)
    else:
        losses = tuple(curve[learning.best_epoch - 1] for curve in learning.folds)
    served = [model.record for model in models if not model.is_linked]
    path_run.store.records.link(served, path_run.context.study)
    constraints = measure(path_run, path_run.context.quantities)
    risks = measure_risks(path_run, models)
    path_run.store.index.flush()
    cost_seconds = begun.own_seconds()
    steps = path_run.costs()
    saved = sum(cost.seconds - cost.load_seconds for cost in steps if cost.hit)
    saved += sum(model.earlier_seconds for model in models if not model.hit)
    evaluation = Evaluation(
        loss=sum(losses) / len(losses),
        fold_losses=losses,
        cost_seconds=cost_seconds,
        cost_uncached_seconds=cost_seconds + max(saved, 0.0),
        steps=steps,
        constraints=constraints,
        resumed_from=sum(bool(model.hit) for model in models),
        predictions=tuple(model.predictions_key for model in models),
        risks=risks,
    )
    if learning is None:
        return evaluation
    trained = [model for model in models if isinstance(model, IterativeNode)]
    trouble = ""
    if broken := next((model for model in trained if model.trouble), None):
        what = f"{type(broken.trouble).__name__}: {broken.trouble}".split("\n", 1)[0]
        trouble = f"no epoch {broken.epochs + 1} in fold {broken.fold.number}: {what}"
    return replace(
        evaluation,
        curve=learning.mean,
        fold_curves=learning.folds,
        best_epoch=learning.best_epoch,
        resumed_from=min(model.resumed_from for model in trained),
        trouble=trouble,
    )


def _losses(path_run: PathRun, models: Sequence[Node]) -> tuple[float, ...]:
    loss, y, n_classes = path_run.metric.loss, path_run.dataset.y, len(path_run.dataset.classes)
    return tuple(loss(y[m.fold.held_out], m.predictions(), n_classes) for m in models)


@task(name="evaluate", task_run_name="trial {number}", **SHOWN)
def evaluate(
    number: int,
    query: Mapping[str, Any],
    context: StudyContext,
    report: Report,
    *,
    limit_seconds: float | None = None,
    pilot_seconds: float | None = None,
) -> State[TrialOutcome]:
    """Evaluate a trial; a failed trial ends Failed, with the reason as its message.

    `report` selects steps that become task runs. `limit_seconds` of None leaves the limit to the
    nannies, and `pilot_seconds` is as in `evaluate_query`.
    """
    reported, worker = ReportedSteps(report), this_worker()
    space = context.problem.find_space()
    where = worker.address if worker else ""
    try:
        with trial_noted(limit_seconds=limit_seconds), _captured(worker, context) as printed:
            asked = Query.from_json(query, space)
            outcome = evaluate_query(context, asked, reported.run_step, space, pilot_seconds)
    except StoreLost as error:
        is_final = isinstance(error, DiskFull | StoreForbidden)
        lost = TrialOutcome(None, None, reported.n_task_runs, str(error), where, is_final)
        return Failed(message=lost.lost, data=lost)
    output = printed[0] if printed else NOTHING
    if isinstance(outcome, Evaluation):
        losses = LossWords(context.problem.metric)
        message = f"{losses.named(outcome.loss)} in {outcome.cost_seconds:.1f} s"
        done = TrialOutcome(outcome, None, reported.n_task_runs, worker=where, printed=output)
        return Completed(message=message, data=done)
    failed = TrialOutcome(None, outcome, reported.n_task_runs, worker=where, printed=output)
    return Failed(message=failure_message(outcome, context.study, number), data=failed)


def _captured(worker: Any, context: StudyContext) -> AbstractContextManager[list[Printed]]:
    task_run, store = TaskRunContext.get(), context.store
    if task_run is None:
        return nullcontext([])
    secrets = [*passwords_in(store.url), *passwords_in(store.database)]
    return trial_captured(worker, str(task_run.task_run.id), secrets)


def failure_message(failure: Failure, study: str, number: int) -> str:
    """Return why a trial failed and the command that shows more, for readers in Prefect's UI."""
    where = f"{failure.step}, fold {failure.fold}: " if failure.step else ""
    return f"{where}{failure.message}; see prefect-tune show {study} --trial {number}"


class ReportedSteps:
    """Runner of steps; steps to report run as Prefect tasks."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.n_task_runs = 1

    def run_step(self, path_run: PathRun, position: int, before: StepOutcome | None) -> StepOutcome:
        """Run one step of a trial, as a task run or directly; raises StepFailed."""
        if self._report == "trial" or (self._report == "misses" and path_run.is_served(position)):
            return path_run.run(position)
        self.n_task_runs += 1
        step, algorithm, _ = path_run.steps[position]
        state = step_task(step.name)(path_run, position, algorithm.id, before, return_state=True)
        return state.result()
