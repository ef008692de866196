"""Trials evaluated again as jobs.

Finalists are evaluated on a second split of the rows, trials whose held-out predictions were not
kept are evaluated for an ensemble, and earlier trials for a constraint that was set since.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from prefect_tune.flows.progress import Observer
from prefect_tune.flows.study.finalists import Look, chosen_look, finalists_of
from prefect_tune.flows.study.lease import study_lease
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.text import LossWords, counted
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.flows.workers.jobs import Job
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.key import PREDICTIONS
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import import_split, load_split, split_again
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.evaluate import TrialOutcome, evaluate

_TIMES_BEFORE = 2.0
"""What a finalist may take, by what it took before, where that is more than the limit of trials and
the user has set none."""


class _TimeSpent(Exception):  # noqa: N818 - it says what is the matter
    """The study has no time left."""


def look_again(
    study: Study, running: DaskTrials, context: StudyContext, observer: Observer
) -> None:
    """Evaluate the finalists on another split, unless they have been, and say which is chosen.

    One that fails there is not chosen instead of the best. Where the time does not suffice, those
    that were looked at count; the best stays chosen if it is not among them.

    Args:
        study: A study whose search has ended, and whose time runs.
        running: Workers to evaluate on.
        context: The study, for the workers.
        observer: Follows the study.

    Raises:
        StoreLost: If the store cannot go on.
    """
    few = finalists_of(study.plan, study.optimizer, running.n_slots)
    if not few:
        if study.finalists:
            study.set_finalists([])
        return
    known = {int(number): loss for number, loss in study.result.get("seen_again", {}).items()}
    if new := [trial for trial in few if trial.number not in known]:
        listed = ", ".join(str(trial.number) for trial in new)
        observer.note(f"looking again at the best trials on another split of the rows: {listed}")
        try:
            for number, loss in _losses_again(study, running, context, new):
                known[number] = loss
                study.set_result(seen_again={str(n): known[n] for n in known})
        except (_TimeSpent, BadInput) as reason:
            observer.note(f"the second look ended early: {reason}")
    looks = [
        Look(trial.number, trial.evaluation.loss, known[trial.number])
        for trial in few
        if trial.number in known and trial.evaluation is not None
    ]
    is_compared = len(looks) > 1 and looks[0].trial == few[0].number
    study.set_finalists(looks if is_compared else [])
    if is_compared:
        observer.note(_choice_text(LossWords(study.plan.metric), looks))


def _losses_again(
    study: Study, running: DaskTrials, context: StudyContext, trials: Sequence[Trial]
) -> Iterator[tuple[int, float | None]]:
    """Yield numbers and losses on another split, None of those that failed.

    Raises:
        BadInput: If the rows allow no other split.
        _TimeSpent: If the time of the study does not suffice.
        StoreLost: If the store cannot go on.
    """
    problem, store = study.problem, study.store
    dataset = load_dataset(store, problem.dataset)
    split = split_again(dataset, load_split(store, problem.split))
    elsewhere = replace(problem, split=import_split(split, store))
    store.records.link(elsewhere.records, study.name)
    context = replace(context, problem=elsewhere, quantities=(), bootstraps=None)
    limit_seconds = study.plan.trial_limits().seconds
    if study.plan.options.trial_timeout is None:
        before = [t.evaluation.cost_uncached_seconds for t in trials if t.evaluation is not None]
        limit_seconds = max(limit_seconds, _TIMES_BEFORE * max(before))
    check = partial(_check_time, study)
    with _predictions_released(study):
        for trial, outcome in _evaluated_again(
            running, context, trials, limit_seconds, what="second look at ", check=check
        ):
            evaluation = outcome.evaluation if isinstance(outcome, TrialOutcome) else None
            yield trial.number, None if evaluation is None else evaluation.loss


@contextmanager
def _predictions_released(study: Study) -> Iterator[None]:
    """Keep no held-out predictions that are made in the body: no ensemble is made of them."""
    records = study.store.records
    former = set(records.used_by(study.name, PREDICTIONS))
    try:
        yield
    finally:
        new = [r for r in records.used_by(study.name, PREDICTIONS) if r not in former]
        records.release(study.name, new, study_lease(study.name))


def _check_time(study: Study) -> None:
    """Check that the study has time left.

    Raises:
        _TimeSpent: If it has none.
    """
    budget = study.plan.options.budget
    if budget is not None and study.seconds() > budget:
        raise _TimeSpent("the time is spent")


def _choice_text(losses: LossWords, looks: Sequence[Look]) -> str:
    """Return which trial is chosen after the second look."""
    first, chosen = looks[0], chosen_look(looks)
    if first.again is None:
        return f"trial {first.trial} failed on the other split, and stays chosen"
    if chosen == first:
        return f"trial {first.trial} stays the best: {losses.named(first.mean)} over both splits"
    return (
        f"trial {chosen.trial} is better over both splits: {losses.named(chosen.mean)}, "
        f"trial {first.trial} {losses.of(first.mean)}"
    )


_MOST = 100
"""More of the best ones would take longer than they could make an ensemble better."""


def restore_predictions(
    study: Study,
    running: DaskTrials,
    context: StudyContext,
    observer: Observer,
    trials: Sequence[Trial],
) -> None:
    """Evaluate trials once more, which is quick where the cache has their models.

    A trial that fails this time stays without predictions, and nothing new is told of any.

    Args:
        study: The study.
        running: Workers to evaluate on.
        context: The study, for the workers.
        observer: Follows the study.
        trials: Complete trials, the best first.

    Raises:
        StoreLost: If the store cannot go on.
    """
    again = trials[:_MOST]
    if again:
        observer.note(f"predicting once more with the models of {counted(len(again), 'trial')}")
    limit_seconds = study.plan.trial_limits().seconds
    for trial, outcome in _evaluated_again(running, context, again, limit_seconds):
        if isinstance(outcome, Exception):
            observer.note(f"trial {trial.number} has no predictions: {outcome}")


def measure_missing(
    study: Study,
    running: DaskTrials,
    context: StudyContext,
    limit_seconds: float,
    observer: Observer,
) -> None:
    """Measure the bounded quantities that trials lack which could be chosen.

    A trial that cannot be measured does not meet the constraint.

    Args:
        study: The study.
        running: Workers to measure on.
        context: The study, for the workers.
        limit_seconds: Seconds that one trial may take.
        observer: Follows the study.

    Raises:
        StoreLost: If the store cannot go on.
    """
    missing = study.without_quantities()
    if missing:
        earlier = counted(len(missing), "earlier trial")
        observer.note(f"measuring the constrained quantities of {earlier}")
    for trial, outcome in _evaluated_again(running, context, missing, limit_seconds):
        if isinstance(outcome, Exception):
            observer.note(f"trial {trial.number} could not be measured: {outcome}")
        elif outcome.evaluation is not None:
            study.measure(trial.number, outcome.evaluation.constraints)
        elif outcome.failure is not None:
            observer.note(f"trial {trial.number} could not be measured: {outcome.failure.message}")


def _evaluated_again(
    running: DaskTrials,
    context: StudyContext,
    trials: Sequence[Trial],
    limit_seconds: float,
    *,
    what: str = "",
    check: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Trial, TrialOutcome | Exception]]:
    """Evaluate trials again, as many side by side as there are slots; one by one if one fails.

    Args:
        running: Workers to evaluate on.
        context: The study, for the workers.
        trials: The trials.
        limit_seconds: Seconds that one trial may take.
        what: Purpose of the task runs, before the name of their trial; empty for their own names.
        check: Called meanwhile; the evaluation ends with what this raises.

    Yields:
        Trial and outcome; for one over a limit, or whose worker died in each attempt, the error.

    Raises:
        StoreLost: If the store cannot go on.
    """
    at_once = max(running.n_slots, 1)  # all workers may be away
    batches = deque(trials[i : i + at_once] for i in range(0, len(trials), at_once))
    while batches:
        batch = batches.popleft()
        jobs = [
            Job(
                evaluate,
                {
                    "number": trial.number,
                    "query": trial.query.to_json(),
                    "context": context,
                    "report": "trial",
                    "limit_seconds": limit_seconds,
                },
                what and f"{what}trial {trial.number}",
            )
            for trial in batch
        ]
        try:
            outcomes = running.run_all(jobs, limit_seconds=limit_seconds, check=check)
        except StoreLost:
            raise
        except (RuntimeError, TimeoutError, MemoryError) as error:  # over a limit, or dead
            if len(batch) == 1:
                yield batch[0], error
            else:
                batches.extendleft([trial] for trial in reversed(batch))
            continue
        for trial, outcome in zip(batch, outcomes, strict=True):
            if outcome.lost:
                raise StoreLost(outcome.lost)
            yield trial, outcome
