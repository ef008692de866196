"""Re-evaluation of the finalists (the few best trials) on a second split of the rows.

The lowest of hundreds of noisy losses is optimistic. If the final model is a single trial, the
losses on a second split correct for luck.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from prefect_tune.flows.study.facts import Recheck, best_recheck
from prefect_tune.flows.study.lease import study_lease
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.progress import Observer
from prefect_tune.flows.study.study import Study, picks_single_trial
from prefect_tune.flows.wording.text import LossWords
from prefect_tune.flows.workers.dask_trials import DaskTrials, Job
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.trials.outcome import Evaluation
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.keys import PREDICTIONS
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.forward_split import another_split
from prefect_tune.tasks.data.split import import_split, load_split
from prefect_tune.tasks.prefect_tasks import evaluate
from prefect_tune.tasks.problem import StudyContext

_FEW = 5
_CANDIDATES = 20
"""Number of best trials from which finalists are selected."""
_MOST_SHARE = 0.1
"""Largest share of the time budget, or of the full trials, for the re-evaluation."""
_SLACK = 1.25
"""Safety factor for the predicted time."""
_START_SECONDS = 0.5
"""Seconds of overhead per task."""
_TIMES_BEFORE = 2.0
"""Time limit of a finalist as a multiple of its earlier cost. The limit applies if it exceeds
the trial limit and the user has set no limit."""


class _TimeSpent(Exception):  # noqa: N818 - the name states the condition
    """The study has no time left."""


def recheck_finalists(
    study: Study, running: DaskTrials, context: StudyContext, observer: Observer
) -> None:
    """Re-evaluate the finalists on a second split, unless already done; report the choice.

    A finalist that fails on the second split cannot replace the best trial. If time runs out, only
    the finalists evaluated so far are compared. If the best trial is not among these finalists, the
    best trial stays the choice. Raises `StoreLost` if the store becomes unusable.
    """
    selected = finalists_of(study.plan, study.optimizer, running.n_slots)
    known = {recheck.trial: recheck for recheck in study.facts.rechecks}
    if new := [trial for trial in selected if trial.number not in known]:
        listed = ", ".join(str(trial.number) for trial in new)
        observer.note(f"re-evaluating the best trials on another split of the rows: {listed}")
        before = set(study.store.records.used_by(study.name, PREDICTIONS))
        try:
            for recheck in _rechecks(study, running, context, new):
                known[recheck.trial] = recheck
                study.record(replace(study.facts, rechecks=tuple(known.values())))
        except (_TimeSpent, BadInput) as reason:
            observer.note(f"the re-evaluation ended early: {reason}")
        finally:  # ensembles use no predictions on the second split
            made = set(study.store.records.used_by(study.name, PREDICTIONS)) - before
            study.store.records.release(study.name, sorted(made), study_lease(study.name))
    finalists = tuple(known[trial.number] for trial in selected if trial.number in known)
    if len(finalists) < 2 or finalists[0].trial != selected[0].number:
        study.record(replace(study.facts, finalists=()))
        return
    study.record(replace(study.facts, finalists=finalists))
    losses, first, chosen = LossWords(study.plan.metric), finalists[0], best_recheck(finalists)
    if first.recheck_loss is None:
        text = f"trial {first.trial} failed on the second split, but stays the best trial"
    elif chosen == first:
        text = f"trial {first.trial} stays the best: {losses.named(first.mean)} over both splits"
    else:
        text = (
            f"trial {chosen.trial} is better over both splits: {losses.named(chosen.mean)}, "
            f"trial {first.trial} {losses.of(first.mean)}"
        )
    observer.note(text)


def _rechecks(
    study: Study, running: DaskTrials, context: StudyContext, trials: Sequence[Trial]
) -> Iterator[Recheck]:
    """Yield trials with their losses on a second split, until time is up."""
    problem, store, options = study.problem, study.store, study.plan.options
    dataset = load_dataset(store, problem.dataset)
    split = another_split(dataset, load_split(store, problem.split))
    elsewhere = replace(problem, split=import_split(split, store))
    store.records.link(elsewhere.records, study.name)
    context = replace(context, problem=elsewhere, quantities=(), bootstraps=None)
    limit_seconds = study.plan.trial_limits().seconds
    if options.trial_timeout is None:
        before = [t.evaluation.cost_uncached_seconds for t in trials if t.evaluation is not None]
        limit_seconds = max(limit_seconds, _TIMES_BEFORE * max(before))

    def check() -> None:
        if options.budget is not None and study.seconds() > options.budget:
            raise _TimeSpent("time budget used")

    at_once = max(running.n_slots, 1)  # all workers may be temporarily gone
    evaluated = partial(_evaluated, running, context, limit_seconds, check)
    for start in range(0, len(trials), at_once):
        batch = trials[start : start + at_once]
        for trial, found in zip(batch, evaluated(batch), strict=True):
            if trial.loss is not None:
                yield Recheck(trial.number, trial.loss, None if found is None else found.loss)


def _evaluated(
    running: DaskTrials,
    context: StudyContext,
    limit_seconds: float,
    check: Callable[[], None],
    trials: Sequence[Trial],
) -> list[Evaluation | None]:
    """Evaluate trials in parallel or, on failure, one by one. A failed trial gives None."""
    given = {"context": context, "report": "trial", "limit_seconds": limit_seconds}
    jobs = [
        Job(
            evaluate,
            {"number": trial.number, "query": trial.query.to_json(), **given},
            f"re-evaluation of trial {trial.number}",
        )
        for trial in trials
    ]
    try:
        outcomes = running.run_all(jobs, limit_seconds=limit_seconds, check=check)
    except StoreLost:
        raise
    except (RuntimeError, TimeoutError, MemoryError):  # a limit was exceeded, or a process died
        if len(trials) == 1:
            return [None]
        alone = partial(_evaluated, running, context, limit_seconds, check)
        return [found for trial in trials for found in alone([trial])]
    for outcome in outcomes:
        if outcome.lost:
            raise StoreLost(outcome.lost)
    return [outcome.evaluation for outcome in outcomes]


def finalists_of(plan: StudyPlan, optimizer: Optimizer, n_slots: int) -> list[Trial]:
    """Return two to five trials to re-evaluate, the best first; none if fewer than two qualify.

    Re-evaluation may take a tenth of the time budget. Without a time budget, the number of
    finalists is at most a tenth of the number of full trials. Trials with equal fold losses count
    as one trial.
    """
    if not picks_single_trial(plan, optimizer):
        return []
    history, seconds = optimizer.history, plan.options.budget
    limit = _FEW if seconds is not None else min(_FEW, int(_MOST_SHARE * len(history.complete)))
    distinct: dict[tuple[float, ...], Trial] = {}
    for trial in history.best(_CANDIDATES):
        if trial.evaluation is not None:
            distinct.setdefault(tuple(trial.evaluation.fold_losses), trial)
    selected: list[Trial] = []
    for trial in distinct.values():
        needed = 0.0 if seconds is None else recheck_seconds([*selected, trial], n_slots) / seconds
        if needed <= _MOST_SHARE and len(selected) < limit:
            selected.append(trial)
        elif not selected:
            break
    return selected if len(selected) > 1 else []


def recheck_seconds(selected: Sequence[Trial], n_slots: int) -> float:
    """Predict the time to re-evaluate trials in batches of `n_slots`."""
    costs = [t.evaluation.cost_uncached_seconds for t in selected if t.evaluation is not None]
    batches = [costs[start : start + n_slots] for start in range(0, len(costs), n_slots)]
    return sum(_SLACK * max(batch) + _START_SECONDS for batch in batches)
