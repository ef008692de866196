"""A study's optimizer and trials, brought back from the ledger."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prefect_tune.flows.following.incumbent_curve import IncumbentCurve
from prefect_tune.flows.study.documents import documents_of
from prefect_tune.flows.study.objective import study_objective
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.trials import StudyTrials
from prefect_tune.optimizers.events import Asked, ConstraintsMeasured, Event, Retried, Told, replay
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.racing.racing import Racing
from prefect_tune.optimizers.registry import make_optimizer
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.wording import fidelity_text
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.ledger import Ledger, LedgerEvent
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import load_split

__all__ = ["Replayed", "replayed_study"]

_EVENTS: Mapping[str, type[Event]] = {
    event.kind: event for event in (Asked, Told, Retried, ConstraintsMeasured)
}


@dataclass(frozen=True, slots=True)
class Replayed:
    """A study as if it had never stopped.

    Attributes:
        optimizer: Its optimizer, told of all trials.
        trials: Its trials.
        ask_seconds: Seconds of each ask.
        task_run_ids: By number, the task run of each trial that has ended, where that was noted.
        curve: Its incumbents.
    """

    optimizer: Optimizer
    trials: StudyTrials
    ask_seconds: list[float]
    task_run_ids: dict[int, str]
    curve: IncumbentCurve


def replayed_study(
    store: ArtifactStore, ledger: Ledger, study: str, plan: StudyPlan, space: Space
) -> Replayed:
    """Return what a study has come to, as if it had never stopped.

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
    trials = StudyTrials(history.values())
    return Replayed(
        optimizer, trials, events.ask_seconds, events.task_run_ids, events.curve(trials)
    )


class _Events:
    """A study's events, read one by one; queries are read once, as most of the time goes there.

    Args:
        space: What the study searches.

    Attributes:
        ask_seconds: Seconds of each ask read so far.
        task_run_ids: By number, the task runs of the trials told so far.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._queries: dict[int, Query] = {}
        self.ask_seconds: list[float] = []
        self.task_run_ids: dict[int, str] = {}
        self._led: list[tuple[float, int]] = []

    def read(self, ledger: Ledger, study: str) -> Iterator[Event]:
        """Yield the events of a study in their order.

        Raises:
            ValueError: If that is none in which they can have happened.
        """
        for event in ledger.each_event(study):
            self._check_order(event)
            if event.kind == Told.kind:
                self._follow(event.body)
                yield Told(self._trial(event.body))
                continue
            happened = _EVENTS[event.kind].from_json(event.body, self._space)
            if isinstance(happened, Asked):
                self._queries[happened.number] = happened.query
                self.ask_seconds.append(event.body["seconds"])
            yield happened

    def curve(self, trials: Mapping[int, Trial]) -> IncumbentCurve:
        """Return the incumbents that were noted with the trials told."""
        curve = IncumbentCurve()
        for seconds, number in self._led:
            if (loss := trials[number].loss) is not None:
                curve.add(seconds, loss, fidelity_text(trials[number].query.to_json()))
        return curve

    def _follow(self, told: Mapping[str, Any]) -> None:
        """Take the task run and the incumbent that are noted with a told trial."""
        if task_run_id := told.get("task_run_id"):
            self.task_run_ids[told["number"]] = task_run_id
        best = told["incumbent"]
        if best is not None and (not self._led or self._led[-1][1] != best):
            # A killed process may have forgotten some seconds of its session.
            since = self._led[-1][0] if self._led else 0.0
            self._led.append((max(told["elapsed_seconds"], since), best))

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
