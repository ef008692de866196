"""Evaluation of a query: each step in all folds, then the loss on the held-out rows."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.outcome import Evaluation, Failure, FailureKind, Pilot
from prefect_tune.storage.database import DatabaseLost, is_outage
from prefect_tune.storage.files import StoreAway, StoreRefused
from prefect_tune.storage.masking import masked
from prefect_tune.storage.waiting import (
    DiskFull,
    Stopwatch,
    StoreLost,
    retry_while_unreachable,
    waits_counted,
)
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.sandbox.output import NOTHING, Printed
from prefect_tune.tasks.sandbox.readiness import load
from prefect_tune.tasks.sandbox.reports import report_waits
from prefect_tune.tasks.threads import one_thread
from prefect_tune.tasks.trial.epochs import IterativeNode
from prefect_tune.tasks.trial.measuring import measure, measure_risks
from prefect_tune.tasks.trial.node import Node
from prefect_tune.tasks.trial.path_run import PathRun, StepFailed, error_line
from prefect_tune.tasks.trial.pilot import WillNotEnd, pilot
from prefect_tune.tasks.user_code import exits_as_errors

Result = TypeVar("Result")

Report = Literal["steps", "misses", "trial"]
"""Task runs that a trial reports: all steps, steps not served by the cache, or none."""


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

    evaluation: Evaluation | None = None
    failure: Failure | None = None
    n_task_runs: int = 1
    lost: str = ""
    worker: str = ""
    is_lost_to_all: bool = False
    printed: Printed = NOTHING


def evaluate_query(
    context: StudyContext,
    query: Query,
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
    return retry_through_outages(partial(_evaluated, context, query, space, pilot_seconds))


def retry_through_outages(work: Callable[[], Result]) -> Result:
    """Repeat work that a store outage interrupted; raises StoreLost after a long outage."""
    try:
        with waits_counted(report_waits):
            return retry_while_unreachable(work, _is_outage)
    except StoreRefused as error:  # the flow was able to open it
        raise StoreLost(str(error)) from error


def _is_outage(error: BaseException) -> bool:
    return isinstance(error, StoreAway) or (isinstance(error, DatabaseLost) and is_outage(error))


def _evaluated(
    context: StudyContext,
    query: Query,
    space: Space | None,
    pilot_seconds: float | None,
) -> Evaluation | Failure:
    stopwatch, load_seconds = Stopwatch(), 0.0
    path_run: PathRun | None = None
    shown: Pilot | None = None
    try:
        with exits_as_errors(), one_thread():
            space = space or context.problem.find_space()
            pipeline = space.pipeline(query.configuration.path)
            load_seconds = load(context, (algorithm for _, algorithm in pipeline))
            stopwatch = Stopwatch()
            path_run = PathRun(context, query, space=space)
            is_served = path_run.is_served(len(path_run.steps) - 1)
            if pilot_seconds is not None and not is_served and context.epochs is None:
                shown = _pilot(path_run, space, pilot_seconds)
            with path_run.pinned() if context.use_cache else nullcontext():
                path_run.run_all()
                evaluation = _evaluation(path_run, stopwatch)
                return replace(evaluation, load_seconds=load_seconds, pilot=shown)
    except Exception as error:
        failed = error if isinstance(error, StepFailed) else None
        cause = failed.__cause__ if failed and failed.__cause__ else error
        if isinstance(cause, StoreLost | StoreRefused):
            raise cause  # noqa: B904 - keeps its own cause
        return Failure(
            kind=_kind(cause),
            message=error_line(cause),
            traceback=masked("".join(traceback.format_exception(cause))),
            step=failed.step if failed else None,
            fold=failed.fold if failed else None,
            cost_seconds=stopwatch.seconds(),
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
    stopwatch = Stopwatch()
    try:
        shown = pilot(path_run, space, limit_seconds)
    except Exception:  # a pilot may fail for lack of rows
        return None
    shown = replace(shown, own_seconds=stopwatch.seconds())
    if shown.is_over_limit:
        raise WillNotEnd(shown)
    return shown


def _evaluation(path_run: PathRun, stopwatch: Stopwatch) -> Evaluation:
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
    path_run.store.index.usage.flush()
    cost_seconds = stopwatch.seconds()
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


def run_trial(
    context: StudyContext, query: Mapping[str, Any], pilot_seconds: float | None = None
) -> TrialOutcome:
    """Evaluate a query, given as JSON values; arguments as in `evaluate_query`."""
    space = context.problem.find_space()
    asked = Query.from_json(query, space)
    try:
        came = evaluate_query(context, asked, space, pilot_seconds)
    except StoreLost as error:
        return TrialOutcome(lost=str(error), is_lost_to_all=isinstance(error, DiskFull))
    if isinstance(came, Evaluation):
        return TrialOutcome(came)
    return TrialOutcome(failure=came)
