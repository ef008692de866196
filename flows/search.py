"""The loop: ask, start on a free worker, tell as each trial ends, until the budget is spent."""

from dataclasses import dataclass, replace

from prefect_tune.flows.progress import Observer, Progress
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.workers.dask_trials import DaskTrials, Ended
from prefect_tune.flows.workers.server_pace import ServerPace
from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.space.sampling import SpaceExhausted
from prefect_tune.optimizers.trials.state import TrialState
from prefect_tune.optimizers.trials.trial import Failure, Trial
from prefect_tune.storage.database import StoreLost

__all__ = ["Limits", "progress_of", "search"]

MAX_ATTEMPTS = 2
"""How often a trial is started whose worker dies; the second death is its own doing."""
_TICK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Limits:
    """When a search ends.

    Attributes:
        trials: Trials in all, earlier ones included; None when not limited.
        seconds: Time in all, that of earlier runs included; None when not limited.
        only: Numbers of the waiting trials to run, and no others; None asks for new ones too.
    """

    trials: int | None = None
    seconds: float | None = None
    only: frozenset[int] | None = None


def search(
    study: Study, running: DaskTrials, limits: Limits, pace: ServerPace, observer: Observer
) -> str:
    """Run trials until the budget is spent, and wait for those under way.

    Trials that are under way when the time ends, or when the flow is interrupted, are cut: they
    wait for another run of the study.

    Returns:
        Why it ended, as people say it.
    """
    try:
        return _search(study, running, limits, pace, observer)
    except BaseException:
        running.cut("the flow was interrupted")
        study.put_back_running()
        raise


def _search(
    study: Study, running: DaskTrials, limits: Limits, pace: ServerPace, observer: Observer
) -> str:
    reason = ""
    while True:
        while not reason and running.has_room():
            if not pace.may_submit(running.n_task_runs):
                break
            trial, reason = _next(study, running, limits)
            if trial is not None:
                running.submit(study.start(trial), pace.report)
        if reason and not running.n_running:
            return reason
        for ended in running.collect(_TICK_SECONDS):
            _settle(study, ended, limits, observer, running)
        observer.tick(progress_of(study, limits, running.n_running))
        if _seconds_left(study, limits) <= 0:
            for trial in running.cut("the study's time is spent"):
                study.put_back(trial)
            return "the time is spent"


def progress_of(study: Study, limits: Limits, n_running: int = 0) -> Progress:
    """Where a study stands."""
    trials = list(study.trials.values())
    metric = study.problem.find_metric()
    steps = [step for t in trials if t.evaluation for step in t.evaluation.steps if step.hit]
    return Progress(
        study=study.name,
        metric=metric.name,
        unit=metric.unit,
        n_trials=sum(t.is_told for t in trials),
        n_failed=sum(t.state == TrialState.FAILED for t in trials),
        n_running=n_running,
        trials_total=limits.trials,
        seconds=study.seconds,
        seconds_total=limits.seconds,
        incumbent=study.incumbent,
        cache_hits=len(steps),
        seconds_saved=sum(step.seconds - step.load_seconds for step in steps),
    )


def _next(study: Study, running: DaskTrials, limits: Limits) -> tuple[Trial | None, str]:
    """The next trial to start, or why there is none."""
    if _seconds_left(study, limits) <= 0:
        return None, "the time is spent"
    if (waiting := study.next_waiting(limits.only)) is not None:
        return waiting, ""
    if limits.only is not None:
        return None, "all are run again"
    if limits.trials is not None and study.n_asked >= limits.trials:
        return None, "all trials are done"
    try:
        return study.ask(_budget(study, running, limits)), ""
    except SpaceExhausted as end:
        return None, str(end)


def _budget(study: Study, running: DaskTrials, limits: Limits) -> Budget:
    left = _seconds_left(study, limits)
    return Budget(
        trials_spent=sum(t.is_told for t in study.trials.values()),
        trials_left=None if limits.trials is None else limits.trials - study.n_asked,
        seconds_spent=sum(t.cost_seconds for t in study.trials.values()),
        seconds_left=None if limits.seconds is None else left * running.n_slots,
        ask_seconds=study.ask_seconds,
    )


def _seconds_left(study: Study, limits: Limits) -> float:
    return float("inf") if limits.seconds is None else limits.seconds - study.seconds


def _settle(
    study: Study, ended: Ended, limits: Limits, observer: Observer, running: DaskTrials
) -> None:
    """Tell what came of a trial; one whose worker died is started once more."""
    trial, outcome = ended.trial, ended.outcome
    if outcome is not None and outcome.lost:
        study.put_back(trial)
        raise StoreLost(outcome.lost)
    if outcome is not None and outcome.evaluation is not None:
        trial = trial.completed(outcome.evaluation)
    elif outcome is not None and outcome.failure is not None:
        trial = trial.failed(outcome.failure)
    elif ended.failure is not None and ended.failure.kind != "crashed":
        trial = trial.failed(ended.failure)
    elif trial.attempts < MAX_ATTEMPTS:
        study.put_back(trial)
        observer.note(f"the worker of trial {trial.number} died; the trial is started again")
        return
    else:
        failure = ended.failure or Failure("crashed", "")
        message = f"the worker process died in {trial.attempts} attempts"
        trial = trial.failed(replace(failure, message=message))
    study.tell(trial)
    observer.ended(trial, progress_of(study, limits, running.n_running))
