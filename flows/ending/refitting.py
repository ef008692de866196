"""Refits the chosen trials in parallel, assembles the final model, and scores the model."""

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
"""Safety factor for predicted times."""
_KEEPING_SECONDS = 0.5
"""Seconds to assemble, store and read back a model."""


class OutOfTime(Exception):  # noqa: N818 - the name states the condition
    """The study has no time left for the work in progress."""


def refit_seconds(study: Study, trials: Sequence[Trial], n_slots: int) -> float:
    """Predict the time to fit trials on all training rows, with a safety margin.

    The measured time of a fold is scaled by the number of rows. If a trial used a subset of the
    rows, the cost model predicts the time from all trials.
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
    """Predict the time to score a model, and its first trial alone, on the test rows."""
    split, costs = load_split(study.store, study.problem.split), study.optimizer.costs
    n_rows = len(split.held_out(REFIT))
    scored = [*trials, *(trials[:1] if len(trials) > 1 else ())]
    seconds = (costs.held_out_seconds(t.query.configuration, n_rows) for t in scored)
    return _SLACK * sum(seconds) if n_rows else 0.0


def can_average_folds(study: Study, trials: Sequence[Trial]) -> bool:
    """Return whether the mean of the fold models (see `folds_of`) can replace a refit.

    The fold models must be in the cache. Models trained in epochs are excluded, because fold models
    may be past the best epoch. Folds ordered by time are excluded, because their models lack the
    newest rows.
    """
    plan = study.plan
    is_trained_further = any(t.evaluation is not None and t.evaluation.curve for t in trials)
    return plan.options.use_cache and not (plan.looks_forward or is_trained_further)


def average_folds(
    study: Study, running: DaskTrials, context: StudyContext, chosen: Members
) -> float:
    """Store the mean of the fold models as the final model; return the time taken.

    Raises `RefitFailed` if the cache no longer has a fold model or the result cannot be stored, and
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
    """Fit the members on all training rows, and store their model; return the time taken.

    Separate tasks fit the members in parallel. Fitted members are pinned in the cache until the
    model is stored. Without a cache, a single task fits all members in turn. `check` is called
    repeatedly and may raise an error.

    Raises:
        OutOfTime: If `check` raises OutOfTime.
        RefitFailed: If a member cannot be fitted or stored, if the fit takes too long, or if the
            process dies in each attempt; the message names the trial.
        StoreLost: If the store becomes unusable.
    """
    started = perf_counter()
    members = [member_of(study, trial, weight) for trial, weight in chosen]
    what, plan = _named(members), study.plan
    # A refit has at least the time limit of its trial.
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
    """Convert errors of members in the `with` block to `RefitFailed`."""
    try:
        yield
    except (StoreLost, RefitFailed, OutOfTime):
        raise
    except Exception as error:  # any class, because jobs run users' code
        raise RefitFailed(f"{what}: {error}" if what else str(error)) from error


def _named(members: Sequence[Member]) -> str:
    return f"trial {members[0].number}" if len(members) == 1 else f"ensemble of {len(members)}"


def score_model(
    running: DaskTrials, context: StudyContext, alone: Member | None = None
) -> LossOnTest:
    """Score the stored model of a study, or a single trial, on the test rows.

    On any error except `StoreLost`, the loss is undefined, and the model stays. If the error was a
    dead process or an exceeded limit, the next session scores the model again.
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
    """Return a member of the final model that averages a trial's fold models.

    If the study has constraints, the member is the model of the first fold, because constraints
    were not measured for a mean of models.
    """
    query = trial.query.to_json()
    if study.plan.options.bounds:
        query["folds"] = 1
    return Member(trial.number, query, weight, of_folds=True)


def member_of(study: Study, trial: Trial, weight: float = 1.0) -> Member:
    """Return a member of the final model that is a trial refitted on all training rows."""
    return Member(trial.number, study.optimizer.refit(trial).to_json(), weight)
