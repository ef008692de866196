"""A study's optimizer and trials, brought back from the ledger."""

from collections.abc import Iterator, Mapping
from typing import Any

from prefect_tune.flows.study.documents import documents_of
from prefect_tune.flows.study.objective import study_objective
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.trials import StudyTrials
from prefect_tune.optimizers.events import Asked, ConstraintsMeasured, Event, Retried, Told, replay
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.racing.racing import Racing
from prefect_tune.optimizers.registry import make_optimizer
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.query import Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.state import TrialState
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.ledger import Ledger, LedgerEvent
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import load_split

__all__ = ["replayed_study"]

_EVENTS: Mapping[str, type[Event]] = {
    event.kind: event for event in (Asked, Told, Retried, ConstraintsMeasured)
}


def replayed_study(
    store: ArtifactStore, ledger: Ledger, study: str, plan: StudyPlan, space: Space
) -> tuple[Optimizer, StudyTrials, list[float]]:
    """Return optimizer and trials of a study as if it had never stopped, and seconds of its asks.

    Args:
        store: Where the study's data is.
        ledger: Where its events are.
        study: Its name.
        plan: What it is run with from now on.
        space: What it searches.

    Raises:
        DatabaseDamaged: If the ledger's documents are not as they were written.
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
    if plan.start:
        start = (Configuration.from_json(known, space) for known in plan.start)
        optimizer.begin_with(start, plan.start_name)
    if plan.race:
        optimizer = Racing(optimizer)
    events = _Events(space)
    with documents_of(study):
        happened = list(events.read(ledger, study))
    replay(optimizer, happened, ledger.memo(study))
    history = {trial.number: trial for trial in optimizer.history}
    with documents_of(study):
        for document in ledger.trials(study, TrialState.WAITING, TrialState.RUNNING):
            number = document["number"]
            history[number] = Trial.from_json(document, space, history[number].query)
    return optimizer, StudyTrials(history.values()), events.ask_seconds


class _Events:
    """A study's events, read one by one; queries are read once, as most of the time goes there.

    Args:
        space: What the study searches.

    Attributes:
        ask_seconds: Seconds of each ask read so far.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._queries: dict[int, Query] = {}
        self.ask_seconds: list[float] = []

    def read(self, ledger: Ledger, study: str) -> Iterator[Event]:
        """Yield the events of a study in their order.

        Raises:
            ValueError: If that is none in which they can have happened.
        """
        for event in ledger.each_event(study):
            self._check_order(event)
            if event.kind == Told.kind:
                yield Told(self._trial(event.body))
                continue
            happened = _EVENTS[event.kind].from_json(event.body, self._space)
            if isinstance(happened, Asked):
                self._queries[happened.number] = happened.query
                self.ask_seconds.append(event.body["seconds"])
            yield happened

    def _check_order(self, event: LedgerEvent) -> None:
        """Check that a trial is asked for once, after those before it, and then its other events.

        Raises:
            ValueError: If it is not.
        """
        number, n_asked = event.body["number"], len(self._queries)
        if number != n_asked if event.kind == Asked.kind else number not in self._queries:
            raise ValueError(
                f"event {event.sequence} ({event.kind}) of trial {number} is misplaced"
            )

    def _trial(self, document: Mapping[str, Any]) -> Trial:
        """Return a trial; its query is the one that was asked, which telling it checks."""
        asked = self._queries.get(document["number"])
        is_same = asked is not None and asked.to_json() == document["query"]
        return Trial.from_json(document, self._space, asked if is_same else None)
