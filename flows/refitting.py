"""Refits of chosen trials: the members in parallel, then the model, then its scores."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import fmean
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
    Member,
    RefitFailed,
    member_pins,
)
from prefect_tune.tasks.fitting.final_scoring import LossOnTest
from prefect_tune.tasks.prefect_tasks import REFIT_TIMES, refit, refit_member, score
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.evaluate import Report

Weighted = Sequence[tuple[Trial, float]]
"""Member trials of a model, and their weights."""

_SLACK = 1.25
"""Safety factor of predicted seconds."""
_KEEPING_SECONDS = 0.5
"""Seconds to assemble a model, store it and read it back."""


class OutOfTime(Exception):  # noqa: N818 - the name states the condition
    """The study has no time left for the current work."""


def refit_seconds(
    study: Study, trials: Sequence[Trial], n_slots: int, subset: float = 1.0
) -> float:
    """Return the predicted seconds to fit trials on the training rows, with a safety margin.

    The prediction scales the time of a fold by the number of rows. For trials on a subset, the cost
    model of all trials predicts the time for the share `subset` of the rows.
    """
    options = study.plan.options
    share = 1 - (1 / options.folds if options.folds is not None else options.holdout or 0.0)
    if study.plan.looks_forward:
        split = load_split(study.store, study.problem.split)
        share = fmean(map(split.n_training, range(split.n_folds))) / split.n_training(REFIT)
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
    """Return the predicted seconds to score a model and its first trial alone on the test rows."""
    split, costs = load_split(study.store, study.problem.split), study.optimizer.costs
    n_rows = len(split.held_out(REFIT))
    scored = [*trials, *(trials[:1] if len(trials) > 1 else ())]
    seconds = (costs.held_out_seconds(t.query.configuration, n_rows) for t in scored)
    return _SLACK * sum(seconds) if n_rows else 0.0


def subset_in_time(study: Study, trials: Sequence[Trial], n_slots: int, seconds: float) -> float:
    """Return the largest share of the training rows that a refit has time for; 0 if none.

    Candidates are 1, 1/2, 1/4 and so on, down to the subset the trials ran on.
    """
    subset, most = 1.0, max(trial.query.subset for trial in trials)
    while subset > most or subset == 1.0:
        if refit_seconds(study, trials, n_slots, subset) <= seconds:
            return subset
        subset /= 2
    return 0.0


def can_average_folds(study: Study, trials: Sequence[Trial]) -> bool:
    """Return whether the mean of the models of the folds can replace a refit.

    Averaging requires a cache that stores these models. Constraints rule it out, because they were
    not measured for the mean. Early stopping rules it out, because fold models have passed the best
    epoch. Folds that look forward rule it out, because their models lack the newest rows.
    """
    plan = study.plan
    if plan.looks_forward:
        return False
    is_trained_further = any(t.evaluation is not None and t.evaluation.curve for t in trials)
    return plan.options.use_cache and not plan.options.bounds and not is_trained_further


def average_folds(running: DaskTrials, context: StudyContext, weighted: Weighted) -> float:
    """Store the mean of the models of the folds as the final model; return the seconds it took.

    Raises `RefitFailed` if the cache has lost a model or the result cannot be stored, and
    `StoreLost`.
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
    """Fit members on the training rows and store the model that combines them; return the seconds.

    Separate tasks fit the members in parallel and pin them in the cache until the model is stored.
    Without a cache, one task fits all members in turn. `check` is called repeatedly.

    Raises:
        OutOfTime: If `check` raises it.
        RefitFailed: If a member cannot be fitted or stored, takes too long, or if its process
            dies in each attempt; names the trial.
        StoreLost: If the store becomes unusable.
    """
    started = perf_counter()
    members = [member_of(study, trial, weight, subset) for trial, weight in weighted]
    what = _named(members)
    times = _times(study, [trial for trial, _ in weighted])
    parameters = {"what": what, "members": members, "context": context, "times": times}
    pins = study.store.index.pins
    pins.release_beginning(member_pins(study.name))  # left by a killed session
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
    """Turn errors of the members in the body into `RefitFailed`."""
    try:
        yield
    except (StoreLost, RefitFailed, OutOfTime):
        raise
    except Exception as error:  # of any kind: jobs run users' code
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
    """Score the stored model of a study, or one trial alone, on the test rows.

    On any error the loss is undefined and the model stays in place. A dead process or an exceeded
    limit is not final: the next session scores again. An error that `check` raises stops the
    scoring, as does a `StoreLost`.
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
        scored: LossOnTest = running.run(score, parameters, check=checked)
    except StoreLost:
        raise
    except Exception as error:  # an exceeded limit, a dead process, or an error of the model
        if error in ends:
            raise
        return LossOnTest(None, masked(f"{error}".split("\n", 1)[0]), is_final=False)
    return scored


def folds_of(trial: Trial, weight: float = 1.0) -> Member:
    """Return a member that averages the models of a trial's folds."""
    return Member(trial.number, trial.query.to_json(), weight, of_folds=True)


def member_of(study: Study, trial: Trial, weight: float = 1.0, subset: float = 1.0) -> Member:
    """Return a trial as a member that is fitted on a share of the training rows."""
    query = replace(study.optimizer.refit(trial), subset=subset)
    return Member(trial.number, query.to_json(), weight)


def _in_turn(members: Sequence[Member]) -> list[Member]:
    """Order members so that few wait for a prefix that another member computes.

    The first members of all prefixes come first, then the second members.
    """
    n_before: Counter[str] = Counter()
    turns = []
    for member in members:
        *prefix, _ = member.query["configuration"].items()
        turns.append(n_before[text := json.dumps(prefix)])
        n_before[text] += 1
    return [members[i] for i in sorted(range(len(members)), key=turns.__getitem__)]


def _times(study: Study, trials: Sequence[Trial]) -> float:
    """Return the time limit of a refit as a multiple of the trial limit."""
    taken = max((trial.cost_seconds for trial in trials), default=0.0)
    return REFIT_TIMES * max(1.0, taken / study.plan.trial_limits().seconds)


def _job(member: Member, context: StudyContext, report: Report, times: float) -> Job:
    parameters = {
        "number": member.number, "query": member.query, "context": context, "report": report,
        "times": times,
    }  # fmt: skip
    return Job(refit_member, parameters, f"refit of trial {member.number}")
