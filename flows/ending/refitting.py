"""Refits of chosen trials: the members in parallel, then the final model, then its scores."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from time import perf_counter

from prefect_tune.flows.ending.ensemble import Members, fold_seconds
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.workers.dask_trials import DaskTrials, Job
from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.masking import masked
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.data.split import REFIT, load_split
from prefect_tune.tasks.final.refit import LossOnTest, Member, RefitFailed, member_pins
from prefect_tune.tasks.prefect_tasks import REFIT_TIMES, refit, refit_member, score
from prefect_tune.tasks.problem import StudyContext

_SLACK = 1.25
"""Safety factor of predicted seconds."""
_KEEPING_SECONDS = 0.5
"""Seconds to assemble a model, store it and read it back."""


class OutOfTime(Exception):  # noqa: N818 - the name states the condition
    """The study has no time left for the current work."""


def refit_seconds(study: Study, trials: Sequence[Trial], n_slots: int) -> float:
    """Predict the seconds of fitting trials on all training rows, with a safety margin.

    The measured time of a fold is scaled by the number of rows. For trials on a subset, the cost
    model of all trials is used instead.
    """
    options, costs = study.plan.options, study.optimizer.costs
    share = 1 - (1 / options.folds if options.folds is not None else options.holdout or 0.0)
    if study.plan.looks_forward:
        split = load_split(study.store, study.problem.split)
        share = fmean(map(split.n_training, range(split.n_folds))) / split.n_training(REFIT)
    seconds = [
        (
            costs.seconds(Query(trial.query.configuration, folds=1))
            if trial.query.subset < 1
            else fold_seconds(trial)
        )
        / share
        for trial in trials
    ]
    side_by_side = max(*seconds, sum(seconds) / max(n_slots, 1))
    return _SLACK * side_by_side + _KEEPING_SECONDS


def scoring_seconds(study: Study, trials: Sequence[Trial]) -> float:
    """Predict the seconds of scoring a model, and its first trial alone, on the test rows."""
    split, costs = load_split(study.store, study.problem.split), study.optimizer.costs
    n_rows = len(split.held_out(REFIT))
    scored = [*trials, *(trials[:1] if len(trials) > 1 else ())]
    seconds = (costs.held_out_seconds(t.query.configuration, n_rows) for t in scored)
    return _SLACK * sum(seconds) if n_rows else 0.0


def can_average_folds(study: Study, trials: Sequence[Trial]) -> bool:
    """Return whether fold models can replace a refit, see `folds_of`.

    Fold models must be in the cache. Models trained in epochs are excluded, because fold models may
    have passed the best epoch, and so are folds that look forward, because their models lack the
    newest rows.
    """
    plan = study.plan
    is_trained_further = any(t.evaluation is not None and t.evaluation.curve for t in trials)
    return plan.options.use_cache and not (plan.looks_forward or is_trained_further)


def average_folds(
    study: Study, running: DaskTrials, context: StudyContext, chosen: Members
) -> float:
    """Store the mean of the fold models as the final model; return the seconds.

    Raises `RefitFailed` if the cache no longer has a model or the result cannot be stored, and
    `StoreLost` if the store becomes unusable.
    """
    started = perf_counter()
    members = [folds_of(study, trial, weight) for trial, weight in chosen]
    what = f"folds of {_named(members)}"
    with _failures_named(f"mean of the {what}"):
        parameters = {"what": what, "members": members, "context": context, "report": "trial"}
        running.run(refit, parameters)
    return perf_counter() - started


def refit_model(
    study: Study,
    running: DaskTrials,
    context: StudyContext,
    chosen: Members,
    check: Callable[[], None] = lambda: None,
) -> float:
    """Fit members on all training rows, and store the model of all members; return the seconds.

    Separate tasks fit the members in parallel, and pin them in the cache until the model is stored.
    Without a cache, one task fits all members in turn. `check` is called repeatedly and may raise
    an error.

    Raises:
        OutOfTime: If `check` raises it.
        RefitFailed: If a member cannot be fitted or stored, takes too long, or its process dies in
            each attempt; the message names the trial.
        StoreLost: If the store becomes unusable.
    """
    started = perf_counter()
    members = [member_of(study, trial, weight) for trial, weight in chosen]
    what, plan = _named(members), study.plan
    # If the trial had a longer limit, so has the refit.
    taken = max(trial.cost_seconds for trial, _ in chosen)
    times = REFIT_TIMES * max(1.0, taken / plan.trial_limits().seconds)
    parameters = {"what": what, "members": members, "context": context, "times": times}
    pins = study.store.index.pins
    pins.release_beginning(member_pins(study.name))  # left by a killed session
    try:
        with _failures_named("" if len(members) > 1 else f"refit of {what}"):
            if len(members) > 1 and context.use_cache:
                asked = plan.options.task_runs
                of_all = {"context": context, "times": times}
                of_all["report"] = "steps" if asked == "auto" else asked
                jobs = [
                    Job(
                        refit_member,
                        {"number": member.number, "query": member.query, **of_all},
                        f"refit of trial {member.number}",
                    )
                    for member in members
                ]
                running.run_all(jobs, check=check)
                parameters["report"] = "trial"
            running.run(refit, parameters, check=check)
    finally:
        pins.release_beginning(member_pins(study.name))
    return perf_counter() - started


@contextmanager
def _failures_named(what: str) -> Iterator[None]:
    """Convert errors of members in the body to `RefitFailed`."""
    try:
        yield
    except (StoreLost, RefitFailed, OutOfTime):
        raise
    except Exception as error:  # of any kind, because jobs run users' code
        raise RefitFailed(f"{what}: {error}" if what else str(error)) from error


def _named(members: Sequence[Member]) -> str:
    return f"trial {members[0].number}" if len(members) == 1 else f"ensemble of {len(members)}"


def score_model(
    running: DaskTrials, context: StudyContext, alone: Member | None = None
) -> LossOnTest:
    """Score the stored model of a study, or one trial alone, on the test rows.

    On any error but `StoreLost`, the loss is undefined, and the model stays. If a process died or a
    limit was exceeded, the next session scores again.
    """
    what = f"trial {alone.number} alone" if alone else "model"
    try:
        scored: LossOnTest = running.run(score, {"what": what, "context": context, "alone": alone})
    except StoreLost:
        raise
    except Exception as error:  # a limit was exceeded, a process died, or the model failed
        return LossOnTest(None, masked(f"{error}".split("\n", 1)[0]), is_final=False)
    return scored


def folds_of(study: Study, trial: Trial, weight: float = 1.0) -> Member:
    """Return a member that is the mean of a trial's fold models.

    With constraints, the member is the model of the first fold, because constraints were not
    measured for a mean of models.
    """
    query = trial.query.to_json()
    if study.plan.options.bounds:
        query["folds"] = 1
    return Member(trial.number, query, weight, of_folds=True)


def member_of(study: Study, trial: Trial, weight: float = 1.0) -> Member:
    """Return a member that is a trial fitted on all training rows."""
    return Member(trial.number, study.optimizer.refit(trial).to_json(), weight)
