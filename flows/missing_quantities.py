"""Constraints that were set after trials had run: what they bound is measured of these too."""

from prefect_tune.flows.progress import Observer
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.units import counted
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.storage.database import StoreLost
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.evaluate import TrialOutcome, evaluate

__all__ = ["measure_missing"]


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
    for trial in missing:
        parameters = {
            "number": trial.number,
            "query": trial.query.to_json(),
            "context": context,
            "report": "trial",
        }
        try:
            outcome: TrialOutcome = running.run(evaluate, parameters, limit_seconds=limit_seconds)
        except (
            RuntimeError,
            TimeoutError,
            MemoryError,
        ) as error:  # over a limit, or dead
            observer.note(f"trial {trial.number} could not be measured: {error}")
            continue
        if outcome.lost:
            raise StoreLost(outcome.lost)
        if outcome.evaluation is not None:
            study.measure(trial.number, outcome.evaluation.constraints)
        elif outcome.failure is not None:
            observer.note(f"trial {trial.number} could not be measured: {outcome.failure.message}")
