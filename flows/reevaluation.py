"""Re-evaluates trials as jobs.

Finalists are re-evaluated on a second split of the rows. Trials without stored held-out predictions
are re-evaluated for an ensemble, and earlier trials for a constraint added later.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from prefect_tune.flows.progress import Observer
from prefect_tune.flows.study.facts import Recheck, best_recheck
from prefect_tune.flows.study.finalists import finalists_of
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
from prefect_tune.tasks.data.forward_split import another_split
from prefect_tune.tasks.data.split import import_split, load_split
from prefect_tune.tasks.prefect_tasks import evaluate
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.evaluate import TrialOutcome

_TIMES_BEFORE = 2.0
"""Time limit of a finalist as a multiple of its earlier cost. It applies if it exceeds the trial
limit and the user has set no limit."""


class _TimeSpent(Exception):  # noqa: N818 - the name states the condition
    """The study has no time left."""


def recheck_finalists(
    study: Study, running: DaskTrials, context: StudyContext, observer: Observer
) -> None:
    """Re-evaluate the finalists on another split, unless done before, and report the choice.

    A finalist that fails on the other split cannot replace the best trial. If the time is too
    short, only the finalists evaluated so far are compared. If the best trial is not among these,
    it stays the choice. Raises `StoreLost` if the store becomes unusable.
    """
    few = finalists_of(study.plan, study.optimizer, running.n_slots)
    if not few:
        study.record(replace(study.facts, finalists=()))
        return
    known = {recheck.trial: recheck for recheck in study.facts.rechecks}
    if new := [trial for trial in few if trial.number not in known]:
        listed = ", ".join(str(trial.number) for trial in new)
        observer.note(f"re-evaluating the best trials on another split of the rows: {listed}")
        try:
            for recheck in _rechecks(study, running, context, new):
                known[recheck.trial] = recheck
                study.record(replace(study.facts, rechecks=tuple(known.values())))
        except (_TimeSpent, BadInput) as reason:
            observer.note(f"the re-evaluation ended early: {reason}")
    finalists = tuple(known[trial.number] for trial in few if trial.number in known)
    is_compared = len(finalists) > 1 and finalists[0].trial == few[0].number
    study.record(replace(study.facts, finalists=finalists if is_compared else ()))
    if is_compared:
        observer.note(_choice_text(LossWords(study.plan.metric), finalists))


def _rechecks(
    study: Study, running: DaskTrials, context: StudyContext, trials: Sequence[Trial]
) -> Iterator[Recheck]:
    """Yield trials with their losses on another split, until time is up."""
    problem, store = study.problem, study.store
    dataset = load_dataset(store, problem.dataset)
    split = another_split(dataset, load_split(store, problem.split))
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
            running, context, trials, limit_seconds, what="re-evaluation of ", check=check
        ):
            evaluation = outcome.evaluation if isinstance(outcome, TrialOutcome) else None
            if trial.evaluation is not None:
                loss = None if evaluation is None else evaluation.loss
                yield Recheck(trial.number, trial.evaluation.loss, loss)


@contextmanager
def _predictions_released(study: Study) -> Iterator[None]:
    """Delete held-out predictions made in the body, because no ensemble uses them."""
    records = study.store.records
    former = set(records.used_by(study.name, PREDICTIONS))
    try:
        yield
    finally:
        new = [r for r in records.used_by(study.name, PREDICTIONS) if r not in former]
        records.release(study.name, new, study_lease(study.name))


def _check_time(study: Study) -> None:
    budget = study.plan.options.budget
    if budget is not None and study.seconds() > budget:
        raise _TimeSpent("time budget used")


def _choice_text(losses: LossWords, finalists: Sequence[Recheck]) -> str:
    first, chosen = finalists[0], best_recheck(finalists)
    if first.recheck_loss is None:
        return f"trial {first.trial} failed on the other split and stays the choice"
    if chosen == first:
        return f"trial {first.trial} stays the best: {losses.named(first.mean)} over both splits"
    return (
        f"trial {chosen.trial} is better over both splits: {losses.named(chosen.mean)}, "
        f"trial {first.trial} {losses.of(first.mean)}"
    )


_MOST = 100
"""Maximum number of trials; more would cost time without improving an ensemble."""


def restore_predictions(
    study: Study,
    running: DaskTrials,
    context: StudyContext,
    observer: Observer,
    trials: Sequence[Trial],
) -> None:
    """Re-evaluate trials, best first, for their predictions; fast if their models are cached.

    A trial that fails now stays without predictions. The method is not informed. Raises `StoreLost`
    if the store becomes unusable.
    """
    again = trials[:_MOST]
    if again:
        observer.note(f"recomputing the held-out predictions of {counted(len(again), 'trial')}")
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
    """Measure missing constrained quantities of trials that could be chosen.

    A trial that cannot be measured does not meet the constraint. Raises `StoreLost` if the store
    becomes unusable.
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
    """Re-evaluate one trial per slot at a time; repeat the trials of a failed batch one by one.

    Yields a trial with its outcome, or with the error if it exceeded a limit or its process died
    in each attempt. Raises `StoreLost` if the store becomes unusable.
    """
    at_once = max(running.n_slots, 1)  # all workers may be temporarily gone
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
        except (RuntimeError, TimeoutError, MemoryError) as error:  # exceeded limit, dead process
            if len(batch) == 1:
                yield batch[0], error
            else:
                batches.extendleft([trial] for trial in reversed(batch))
            continue
        for trial, outcome in zip(batch, outcomes, strict=True):
            if outcome.lost:
                raise StoreLost(outcome.lost)
            yield trial, outcome
