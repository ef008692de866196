"""Refits of what a study has chosen: members side by side, then the model, then its scores."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter

from prefect_tune.flows.study.next_best import fold_seconds
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.flows.workers.jobs import Job
from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.masking import masked
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.data.split import REFIT, load_split
from prefect_tune.tasks.final_model import (
    REFIT_TIMES,
    FinalScores,
    Member,
    RefitFailed,
    member_pins,
    refit,
    refit_member,
    score,
)
from prefect_tune.tasks.fitting.final_scoring import LossOnTest
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.evaluate import Report

Weighted = Sequence[tuple[Trial, float]]
"""Trials that a model is made of, and their weights."""

_SLACK = 1.25
"""Of the seconds that a refit should take."""
_KEEPING_SECONDS = 0.5
"""To put a model together, read it back and store it."""


class OutOfTime(Exception):  # noqa: N818 - it says what is the matter
    """The study has no time left for what is under way."""


def refit_seconds(
    study: Study, trials: Sequence[Trial], n_slots: int, subset: float = 1.0
) -> float:
    """Return how long fitting trials on the training rows should take at most.

    Each takes as long as one of its folds, more by as many rows as there are more. Where a trial
    ran on a part of the rows, that is what the costs of all trials predict.

    Args:
        study: The study.
        trials: Those that the model is made of.
        n_slots: How many are fitted at once.
        subset: Share of the rows, for trials that ran on a part of them.
    """
    options = study.plan.options
    share = 1 - (1 / options.folds if options.folds is not None else options.holdout or 0.0)
    costs = study.optimizer.costs
    of_folds = (
        costs.seconds(Query(trial.query.configuration, subset, folds=1))
        if trial.query.subset < 1
        else fold_seconds(trial)
        for trial in trials
    )
    seconds = [of_fold / share for of_fold in of_folds]
    side_by_side = max(*seconds, sum(seconds) / max(n_slots, 1))
    return _SLACK * side_by_side + _KEEPING_SECONDS


def scoring_seconds(study: Study, trials: Sequence[Trial]) -> float:
    """Return how long the scores of the test rows should take: of a model, and of its first trial.

    Args:
        study: The study.
        trials: Those that the model is made of.
    """
    split, costs = load_split(study.store, study.problem.split), study.optimizer.costs
    n_rows = len(split.held_out(REFIT))
    scored = [*trials, *(trials[:1] if len(trials) > 1 else ())]
    seconds = (costs.held_out_seconds(t.query.configuration, n_rows) for t in scored)
    return _SLACK * sum(seconds) if n_rows else 0.0


def subset_in_time(study: Study, trials: Sequence[Trial], n_slots: int, seconds: float) -> float:
    """Return the largest share of the training rows that a refit has time for; 0 if there is none.

    That is all rows, or the half, a quarter and so on of them where that is still more than the
    trials ran on.

    Args:
        study: The study.
        trials: Those that the model is made of.
        n_slots: How many are fitted at once.
        seconds: How long it may take.
    """
    subset, most = 1.0, max(trial.query.subset for trial in trials)
    while subset > most or subset == 1.0:
        if refit_seconds(study, trials, n_slots, subset) <= seconds:
            return subset
        subset /= 2
    return 0.0


def can_average_folds(study: Study, trials: Sequence[Trial]) -> bool:
    """Return whether means of the models of folds may take the place of refits.

    Only with a cache, which holds them. Never under constraints, which they were not measured
    against, and not where models stop at their best epoch, which those of folds have passed.
    """
    plan = study.plan
    is_trained_further = any(t.evaluation is not None and t.evaluation.curve for t in trials)
    return plan.options.use_cache and not plan.options.bounds and not is_trained_further


def average_folds(running: DaskTrials, context: StudyContext, weighted: Weighted) -> float:
    """Keep the model that is made of the models of the folds of trials; return the seconds.

    Raises:
        RefitFailed: If the cache has lost one of them, or the model cannot be kept; names the
            trial.
        StoreLost: If the store cannot go on.
    """
    started = perf_counter()
    members = [folds_of(trial, weight) for trial, weight in weighted]
    with _failures_named(f"mean of the folds of {_named(members)}"):
        parameters = {"what": f"folds of {_named(members)}", "members": members}
        running.run(refit, {**parameters, "context": context, "report": "trial"})
    return perf_counter() - started


def refit_model(
    study: Study,
    running: DaskTrials,
    context: StudyContext,
    weighted: Weighted,
    *,
    check: Callable[[], None] = lambda: None,
    subset: float = 1.0,
) -> float:
    """Fit members on the training rows and keep the model that is made of them.

    They are fitted side by side, each by a task of its own, and handed over by the cache, where
    they stay pinned until then. Without a cache one task fits them one after the other.

    Args:
        study: The study.
        running: Workers to fit on, none of which is needed by a trial.
        context: The study, for the workers.
        weighted: Trials that the model is made of, and their weights.
        check: Called meanwhile; the refit ends with the `OutOfTime` that this raises.
        subset: Share of the training rows to fit on.

    Returns:
        The seconds that it took.

    Raises:
        OutOfTime: As `check` raises it.
        RefitFailed: If a member cannot be fitted or kept, or takes too long, or the worker of a
            task died in each attempt; names the trial.
        StoreLost: If the store cannot go on.
    """
    started = perf_counter()
    members = [member_of(study, trial, weight, subset) for trial, weight in weighted]
    what = _named(members)
    times = _times(study, [trial for trial, _ in weighted])
    parameters = {"what": what, "members": members, "context": context, "times": times}
    pins = study.store.index.pins
    pins.release_beginning(member_pins(study.name))  # of a session that was killed
    try:
        with _failures_named("" if len(members) > 1 else f"refit of {what}"):
            if len(members) == 1 or not context.use_cache:
                running.run(refit, parameters, check=check)
                return perf_counter() - started
            asked = study.plan.options.task_runs
            report: Report = "steps" if asked == "auto" else asked
            jobs = [_job(member, context, report, times) for member in _in_turn(members)]
            running.run_all(jobs, check=check)
            running.run(refit, {**parameters, "report": "trial"}, check=check)
    finally:
        pins.release_beginning(member_pins(study.name))
    return perf_counter() - started


@contextmanager
def _failures_named(what: str) -> Iterator[None]:
    """Raise `RefitFailed` for whatever goes wrong with the members of a model in the body."""
    try:
        yield
    except (StoreLost, RefitFailed, OutOfTime):
        raise
    except Exception as error:  # of any kind: what users wrote runs on the workers
        failed = RefitFailed(f"{what}: {error}" if what else str(error))
        failed.is_over_limit = isinstance(error, TimeoutError)
        raise failed from error


def _named(members: Sequence[Member]) -> str:
    return f"trial {members[0].number}" if len(members) == 1 else f"ensemble of {len(members)}"


def score_model(
    running: DaskTrials,
    context: StudyContext,
    alone: Member | None = None,
    check: Callable[[], None] = lambda: None,
) -> LossOnTest:
    """Score the stored model of a study on the test rows, or one trial alone.

    Whatever goes wrong leaves the loss undefined, and the model as it is. A worker that died and a
    limit that was exceeded are accidents: the next session scores again.

    Args:
        running: Workers to score on, none of which is needed by a trial.
        context: The study, for the workers.
        alone: The trial; None for the model.
        check: Called meanwhile; scoring ends with what this raises.

    Raises:
        StoreLost: If the store cannot go on.
    """
    ends: list[BaseException] = []

    def checked() -> None:
        try:
            check()
        except BaseException as end:
            ends.append(end)
            raise

    what = f"trial {alone.number} alone" if alone else "model"
    parameters = {"what": what, "context": context, "alone": alone}
    try:
        scored: FinalScores = running.run(score, parameters, check=checked)
    except StoreLost:
        raise
    except Exception as error:  # over a limit, a worker that died, what a model raises
        if error in ends:
            raise
        return LossOnTest(None, masked(f"{error}".split("\n", 1)[0]), is_final=False)
    return scored.test


def folds_of(trial: Trial, weight: float = 1.0) -> Member:
    """Return the mean of the models of a trial's folds as a member of the final model."""
    return Member(trial.number, trial.query.to_json(), weight, of_folds=True)


def member_of(study: Study, trial: Trial, weight: float = 1.0, subset: float = 1.0) -> Member:
    """Return a trial as a member of the final model, fitted on a share of the training rows."""
    query = replace(study.optimizer.refit(trial), subset=subset)
    return Member(trial.number, query.to_json(), weight)


def _in_turn(members: Sequence[Member]) -> list[Member]:
    """Return members so that as few as can be begin while what they begin with is being made.

    The first of each prefix come first, then the second ones: side by side, those of one prefix
    would wait for each other.
    """
    n_before: Counter[str] = Counter()
    turns = []
    for member in members:
        *prefix, _ = member.query["configuration"].items()
        turns.append(n_before[text := json.dumps(prefix)])
        n_before[text] += 1
    return [members[i] for i in sorted(range(len(members)), key=turns.__getitem__)]


def _times(study: Study, trials: Sequence[Trial]) -> float:
    """Return how many times as long as a trial a refit may take: also of trials without a limit."""
    taken = max((trial.cost_seconds for trial in trials), default=0.0)
    return REFIT_TIMES * max(1.0, taken / study.plan.trial_limits().seconds)


def _job(member: Member, context: StudyContext, report: Report, times: float) -> Job:
    parameters = {
        "number": member.number, "query": member.query, "context": context, "report": report,
        "times": times,
    }  # fmt: skip
    return Job(refit_member, parameters, f"refit of trial {member.number}")
