"""A second look at the best trials of a search, on another split of the rows into folds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from prefect_tune.flows.progress import Observer
from prefect_tune.flows.study.finalists import chosen_look, finalists_of, mean_loss
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.units import loss_name
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.flows.workers.jobs import Job
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.database import StoreLost
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import import_split, load_split, split_again
from prefect_tune.tasks.evaluate import TrialOutcome, evaluate
from prefect_tune.tasks.study_context import StudyContext

__all__ = ["look_again", "look_seconds"]

_SLACK = 1.25
"""Of the time that a second look should take."""
_START_SECONDS = 0.5
"""That a task may take to begin and to end."""


def look_seconds(study: Study, n_slots: int) -> float:
    """Return how long a second look at the best trials should take at most; 0 if there is none.

    Args:
        study: The study.
        n_slots: How many trials run at once.
    """
    few = finalists_of(study.plan, study.optimizer, study.trials.totals.cost_seconds)
    costs = [t.evaluation.cost_uncached_seconds for t in few if t.evaluation is not None]
    expected = max(sum(costs) / n_slots, max(costs, default=0.0))
    return _SLACK * expected + _START_SECONDS * len(few) / n_slots


def look_again(
    study: Study, running: DaskTrials, context: StudyContext, observer: Observer
) -> None:
    """Evaluate the finalists on another split, unless they have been, and say which is chosen.

    One that fails there is not chosen. Where time or rows do not allow it, the best stays chosen.

    Args:
        study: A study whose search has ended, and whose time runs.
        running: Workers to evaluate on.
        context: The study, for the workers.
        observer: Follows the study.

    Raises:
        StoreLost: If the store cannot go on.
    """
    few = finalists_of(study.plan, study.optimizer, study.trials.totals.cost_seconds)
    if not few:
        return
    looks = study.result.get("finalists") or ()
    known = {look["trial"]: look["again"] for look in looks if look["again"] is not None}
    new = [trial for trial in few if trial.number not in known]
    if new:
        observer.note(f"looking at the best {len(few)} trials again, on another split of the folds")
        try:
            for number, loss in _losses_again(study, running, context, new):
                known[number] = loss  # noqa: PERF403 - what came before an error counts
        except StoreLost:
            raise
        except (BadInput, RuntimeError, TimeoutError, MemoryError) as error:
            observer.note(f"the second look ended early: {error}")
    looks = [{"trial": t.number, "loss": t.loss, "again": known.get(t.number)} for t in few]
    study.set_result(finalists=looks)
    observer.note(_said(study, looks))


def _losses_again(
    study: Study, running: DaskTrials, context: StudyContext, trials: Sequence[Trial]
) -> Iterator[tuple[int, float | None]]:
    """Yield numbers and losses on another split, None of those that failed.

    Raises:
        BadInput: If the rows allow no other split.
        RuntimeError, TimeoutError, MemoryError: If the time does not suffice, or a worker dies.
        StoreLost: If the store cannot go on.
    """
    problem = study.problem
    dataset = load_dataset(study.store, problem.dataset)
    split = split_again(dataset, load_split(study.store, problem.split))
    elsewhere = replace(problem, split=import_split(split, study.store))
    context = replace(context, problem=elsewhere, quantities=(), bootstraps=None)
    for start in range(0, len(trials), running.n_slots):
        batch = trials[start : start + running.n_slots]
        outcomes: list[TrialOutcome] = running.run_all(
            [_job(trial, context) for trial in batch],
            limit_seconds=study.plan.trial_limits().seconds,
            check=partial(_check_time, study),
        )
        for trial, outcome in zip(batch, outcomes, strict=True):
            if outcome.lost:
                raise StoreLost(outcome.lost)
            seen = outcome.evaluation
            yield trial.number, None if seen is None else seen.loss


def _job(trial: Trial, context: StudyContext) -> Job:
    parameters = {
        "number": trial.number, "query": trial.query.to_json(), "context": context,
        "report": "trial",
    }  # fmt: skip
    return Job(evaluate, parameters, f"second look at trial {trial.number}")


def _check_time(study: Study) -> None:
    """Check that the study has time left.

    Raises:
        TimeoutError: If it has none.
    """
    budget = study.plan.stop_rule.seconds
    if budget is not None and study.seconds() > budget:
        raise TimeoutError("the time is spent")


def _said(study: Study, looks: Sequence[Mapping[str, Any]]) -> str:
    """Return which trial is chosen, as people say it."""
    first, chosen = looks[0], chosen_look(looks)
    if chosen == first:
        return f"trial {first['trial']} stays the best"
    return (
        f"trial {chosen['trial']} is better over both splits: {loss_name(study.plan.metric)} "
        f"{mean_loss(chosen):.4g}, trial {first['trial']} {mean_loss(first):.4g}"
    )
