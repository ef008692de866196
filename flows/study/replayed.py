"""A study's optimizer and trials, brought back from the ledger."""

from collections.abc import Mapping

from prefect_tune.flows.study.objective import study_objective
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.events import Asked, ConstraintsMeasured, Event, Retried, Told, replay
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.racing.racing import Racing
from prefect_tune.optimizers.registry import make_optimizer
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import load_split

__all__ = ["read_trials", "replayed_optimizer"]

_EVENTS: Mapping[str, type[Event]] = {
    event.kind: event for event in (Asked, Told, Retried, ConstraintsMeasured)
}


def replayed_optimizer(
    store: ArtifactStore, ledger: Ledger, study: str, plan: StudyPlan, space: Space
) -> tuple[Optimizer, list[float]]:
    """Return the optimizer of a study as if it had never stopped, and the seconds of its asks.

    Args:
        store: Where the study's data is.
        ledger: Where its events are.
        study: Its name.
        plan: What it is run with from now on.
        space: What it searches.
    """
    problem = plan.problem
    objective = study_objective(
        problem.find_metric(),
        load_dataset(store, problem.dataset),
        load_split(store, problem.split),
        space,
        constraints=tuple(bounded.constraint for bounded in plan.bounds),
        epochs=plan.epochs,
    )
    optimizer = make_optimizer(plan.method, space, problem.seed, objective, plan.options)
    if plan.race:
        optimizer = Racing(optimizer)
    events = ledger.events(study)
    happened = [_EVENTS[e.kind].from_json(e.body, space) for e in events]
    replay(optimizer, happened, ledger.memo(study))
    return optimizer, [e.body["seconds"] for e in events if e.kind == Asked.kind]


def read_trials(ledger: Ledger, study: str, space: Space) -> list[Trial]:
    """Return all trials of a study, by number, as the ledger has them."""
    return [Trial.from_json(document, space) for document in ledger.trials(study)]
