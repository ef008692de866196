"""Held-out predictions that a study did not keep, and that an ensemble needs after all."""

from collections.abc import Sequence

from prefect_tune.flows.progress import Observer
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.units import counted
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.database import StoreLost
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.evaluate import TrialOutcome, evaluate

__all__ = ["restore_predictions"]

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
    for trial in again:
        parameters = {
            "number": trial.number,
            "query": trial.query.to_json(),
            "context": context,
            "report": "trial",
        }
        try:
            outcome: TrialOutcome = running.run(
                evaluate, parameters, limit_seconds=study.plan.trial_limits().seconds
            )
        except StoreLost:
            raise
        except (
            RuntimeError,
            TimeoutError,
            MemoryError,
        ) as error:  # over a limit, or dead
            observer.note(f"trial {trial.number} has no predictions: {error}")
            continue
        if outcome.lost:
            raise StoreLost(outcome.lost)
