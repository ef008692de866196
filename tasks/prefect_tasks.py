"""The Prefect tasks of trials, and of the final model after the trials.

The purpose of these tasks is visibility in Prefect's UI; Prefect's own caching and persistence are
off. Each task calls a plain function in a sandbox, and shows the steps reported by the function as
task runs. If the cache served a step in every fold, the step's task run ends as Cached.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Failed

from prefect_tune.optimizers.trials.outcome import Failure, FailureKind
from prefect_tune.storage.masking import passwords_in
from prefect_tune.storage.notices import Notice
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.final.promotion import DecisionRules, ModelComparison, StudyModel, compared
from prefect_tune.tasks.final.refit import (
    LossOnTest,
    Member,
    make_member,
    make_model,
    scored_on_test,
)
from prefect_tune.tasks.objective.metric import LossWords
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.sandbox.child import request
from prefect_tune.tasks.sandbox.dask_runner import DaskTask
from prefect_tune.tasks.sandbox.output import NOTHING, Printed
from prefect_tune.tasks.sandbox.sandbox import SANDBOXES, Call, CallEnded, Limits
from prefect_tune.tasks.trial.evaluate import Report, TrialOutcome, load, run_trial

SHOWN: Mapping[str, Any] = {
    "cache_policy": NO_CACHE,
    "persist_result": False,
    "retries": 0,  # overrides Prefect's settings, because a failure is an outcome
    "log_prints": False,  # overrides Prefect's settings, because prints belong to the trial
}
"""Task options that make Prefect show tasks without caching, retries or persistence."""
REFIT_TIMES = 3.0
"""Time limit of a fit on all training rows, as a multiple of a trial's limit."""


class ServedStep:
    """References to a step's results.

    The class is plain, so that Prefect links a task run to the next step's task run.
    """

    __slots__ = ("__weakref__", "keys")

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys


def run_step(
    call: Call,
    algorithm: str,  # noqa: ARG001 - names the task run
    before: ServedStep | None,  # noqa: ARG001 - Prefect draws the edge from it
) -> State[Any]:
    """Wait for one step in all folds; `before` draws Prefect's edge from the previous step."""
    try:
        done = call.step_done()
    except CallEnded as ended:
        return state_of(ended)
    if done.problem:
        return Failed(message=done.problem)
    step = ServedStep(done.keys)
    if done.n_cached == len(done.keys):
        return Completed(name="Cached", message=f"step result {done.keys[0][:12]}", data=step)
    cached = f"{done.n_cached} of {len(done.keys)} folds cached"
    return Completed(message=cached if done.n_cached else None, data=step)


@cache
def step_task(step: str) -> Callable[..., State[Any]]:
    """Return the Prefect task of a step, named after the step."""
    return task(name=step, task_run_name=f"{step}: {{algorithm}}", **SHOWN)(run_step)


def state_of(ended: CallEnded, message: str = "", data: Any = None) -> State[Any]:
    """Return the state of a task run whose call ended without a result."""
    message = message or str(ended)
    if ended.kind is None:
        return Cancelled(message=message)
    name = "TimedOut" if ended.kind == FailureKind.TIMEOUT else None
    return Failed(name=name, message=message, data=data)


@dataclass
class ShownCall:
    """A call in a sandbox that shows steps as task runs.

    Attributes:
        what: Subject of warnings, such as `trial 7`.
        report: Steps that are shown as task runs.
        n_task_runs: Number of task runs so far, including the caller's own.
        printed: Output of the call.
    """

    what: str
    context: StudyContext
    report: Report
    n_task_runs: int = 1
    printed: Printed = NOTHING
    task: DaskTask = field(default_factory=DaskTask)

    def run(self, function: Callable[..., Any], limits: Limits, **arguments: Any) -> Any:
        """Return the value of `function(context, **arguments)`, run in a sandbox.

        If the sandbox is killed from outside, for example by the kernel, the call is retried once.
        Raises `CallEnded`, `NoSandbox` if no sandbox can be started, and errors of the function.
        """
        arguments = {"context": self.context, **arguments}
        memory_bytes = self.context.memory_limit_bytes or self.task.memory_bytes
        limits = replace(limits, memory_bytes=memory_bytes)
        store = self.context.store
        secrets = [*passwords_in(store.url), *passwords_in(store.database)]
        loaded = {"context": self.context, "algorithms": ()}
        at_start = request(load, loaded, is_awaited=False)
        for is_last in (False, True):
            with SANDBOXES.taken(self.task, at_start) as sandbox:
                call = sandbox.call(function, arguments, limits, self.task)
                try:
                    value = self._follow(call)
                except CallEnded as ended:
                    if not ended.may_repeat or is_last:
                        raise
                    text = f"rerunning {self.what}: {ended}"
                    self.task.observe(Notice("killed", text, self.what))
                else:
                    if isinstance(value, TrialOutcome) and value.evaluation is None:
                        sandbox.end()
                    return value
                finally:
                    self.printed = sandbox.output.printed(secrets)
        raise AssertionError("the last attempt returns or raises")

    def _follow(self, call: Call) -> Any:
        before: ServedStep | None = None
        while (step := call.next_step()) is not None:
            if self.report == "trial" or (self.report == "misses" and step.is_served):
                continue
            self.n_task_runs += 1
            state = step_task(step.step)(call, step.algorithm, before, return_state=True)
            if call.ended is not None:
                raise call.ended
            before = state.result() if state.is_completed() else None
        return call.value()


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
    """Evaluate a trial; if the trial fails, the task run ends as Failed with the reason.

    `report` selects the steps that become task runs. If `limit_seconds` is None, the study's limit
    of a trial applies. See `evaluate_query` for `pilot_seconds`.
    """
    shown = ShownCall(f"trial {number}", context, report)
    limits = Limits(context.trial_seconds if limit_seconds is None else limit_seconds)
    if limits.seconds < context.trial_seconds:
        why = "a limit from measured costs and the time left; --trial-timeout sets another"
        limits = replace(limits, remedy=why)
    ended: CallEnded | None = None
    try:
        outcome = shown.run(run_trial, limits, query=query, pilot_seconds=pilot_seconds)
    except CallEnded as error:
        ended, at = error, error.at
        failure = Failure(
            kind=error.kind or FailureKind.CRASHED,
            message=str(error),
            step=at.step,
            fold=at.fold,
            cost_seconds=0.0 if at.is_loading else at.seconds(),
            steps=at.costs,
            load_seconds=at.seconds() if at.is_loading else at.load_seconds,
        )
        outcome = TrialOutcome(failure=failure)
    except StoreLost as error:
        outcome = TrialOutcome(lost=str(error))
    outcome = replace(
        outcome, n_task_runs=shown.n_task_runs, worker=shown.task.address, printed=shown.printed
    )
    if (failed := outcome.failure) is not None:
        where = f"{failed.step}, fold {failed.fold}: " if failed.step else ""
        see = f"see prefect-tune show {context.study} --trial {number}"
        message = f"{where}{failed.message}; {see}"
        if ended is not None:
            return state_of(ended, message, outcome)
        return Failed(message=message, data=outcome)
    if (done := outcome.evaluation) is None:
        return Failed(message=outcome.lost, data=outcome)
    loss = LossWords(context.problem.metric).named(done.loss)
    return Completed(message=f"{loss} in {done.cost_seconds:.1f} s", data=outcome)


@dataclass(frozen=True, slots=True)
class Shown:
    """A value, and the number of task runs that were reported."""

    value: Any
    n_task_runs: int


def _call(
    what: str,
    context: StudyContext,
    report: Report,
    times: float,
    function: Callable[..., Any],
    **arguments: Any,
) -> Shown:
    """Call a function other than a trial; the time limit is a trial's limit multiplied by `times`.

    Raises `TimeoutError`, `MemoryError` or `RuntimeError` if the call was ended.
    """
    shown = ShownCall(what, context, report)
    remedy = f"{times:g} times the limit of a trial; raise the limit with --trial-timeout"
    limits = Limits(times * context.trial_seconds, remedy=remedy)
    try:
        return Shown(shown.run(function, limits, **arguments), shown.n_task_runs)
    except CallEnded as ended:
        errors = {FailureKind.TIMEOUT: TimeoutError, FailureKind.MEMORY: MemoryError}
        error = errors.get(ended.kind, RuntimeError) if ended.kind else RuntimeError
        raise error(str(ended)) from ended


@task(name="refit member", task_run_name="refit member: trial {number}", **SHOWN)
def refit_member(
    number: int,
    query: Mapping[str, Any],
    context: StudyContext,
    report: Report,
    times: float = REFIT_TIMES,
) -> State[Shown]:
    """Fit a query from `Optimizer.refit` on all training rows, and pin the step results.

    `report` selects the steps that become task runs. The time limit is a trial's limit multiplied
    by `times`.
    """
    member = Member(number, query)
    done = _call(f"refit of trial {number}", context, report, times, make_member, member=member)
    n_made, n_steps = done.value
    return Completed(message=f"{n_steps - n_made} of {n_steps} steps cached", data=done)


@task(name="refit", task_run_name="refit {what}", **SHOWN)
def refit(
    what: str,
    members: Sequence[Member],
    context: StudyContext,
    report: Report = "steps",
    times: float = REFIT_TIMES,
) -> State[Shown]:
    """Store the study's final model, whose members are fitted on all training rows or cached.

    `what` names the task run, and `report` selects the steps that become task runs. The time limit
    per member is a trial's limit multiplied by `times`. The value is the duration in seconds.
    """
    times *= len(members)
    done = _call(f"refit of {what}", context, report, times, make_model, members=members)
    return Completed(message=f"stored after {done.value:.1f} s", data=done)


@task(name="score", task_run_name="score {what}", **SHOWN)
def score(what: str, context: StudyContext, alone: Member | None = None) -> State[Shown]:
    """Score the study's model, or the single trial `alone`, on the test rows.

    `what` names the task run. The time limit is a multiple of a trial's limit.
    """
    done = _call(f"score of {what}", context, "trial", REFIT_TIMES, scored_on_test, alone=alone)
    test: LossOnTest = done.value
    message = f"undefined: {test.undefined}" if test.undefined else "no test rows"
    if test.loss is not None:
        message = f"test {LossWords(context.problem.metric).named(test.loss)}"
    return Completed(message=message, data=done)


@task(name="compare", task_run_name="compare {what}", **SHOWN)
def compare_models(
    what: str,
    context: StudyContext,
    champion: StudyModel,
    challenger: StudyModel,
    rules: DecisionRules,
) -> State[Shown]:
    """Compare two models on fresh rows, with the same time limit as in `score`."""
    models = {"champion": champion, "challenger": challenger, "rules": rules}
    done = _call(f"comparison of {what}", context, "trial", REFIT_TIMES, compared, **models)
    outcome: ModelComparison = done.value
    return Completed(message=outcome.problem or f"{outcome.n_rows} fresh rows", data=done)
