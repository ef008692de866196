"""A study's optimizer and trials, brought back from the ledger."""

from collections.abc import Mapping
from dataclasses import replace

from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.events import Asked, ConstraintsMeasured, Event, Retried, Told, replay
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.registry import make_optimizer
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import TEST, load_split

__all__ = ["read_trials", "replayed_optimizer"]

_EVENTS: Mapping[str, type[Event]] = {
    event.kind: event for event in (Asked, Told, Retried, ConstraintsMeasured)
}


def replayed_optimizer(
    store: ArtifactStore, ledger: Ledger, study: str, plan: StudyPlan, space: Space
) -> tuple[Optimizer, float]:
    """Return the optimizer of a study as if it had never stopped, and the seconds its asks took.

    Args:
        store: Where the study's data is.
        ledger: Where its events are.
        study: Its name.
        plan: What it is run with from now on.
        space: What it searches.
    """
    problem = plan.problem
    dataset = load_dataset(store, problem.dataset)
    training = load_split(store, problem.split).fold != TEST
    objective = replace(
        problem.find_metric().objective(dataset.y[training], len(dataset.classes)),
        constraints=tuple(bounded.constraint for bounded in plan.bounds),
    )
    optimizer = make_optimizer(plan.method, space, problem.seed, objective, plan.options)
    events = ledger.events(study)
    replay(optimizer, (_EVENTS[e.kind].from_json(e.body, space) for e in events))
    return optimizer, sum(e.body["seconds"] for e in events if e.kind == Asked.kind)


def read_trials(ledger: Ledger, study: str, space: Space) -> list[Trial]:
    """Return all trials of a study, by number, as the ledger has them."""
    return [Trial.from_json(document, space) for document in ledger.trials(study)]
