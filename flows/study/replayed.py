"""A study's optimizer, objective and trials, rebuilt from the ledger."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from prefect_tune.flows.progress import IncumbentCurve
from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.flows.text import Whole
from prefect_tune.optimizers.events import (
    Asked,
    Event,
    PriorGiven,
    Retried,
    Told,
    event_of,
    replay,
)
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.racing import Racing
from prefect_tune.optimizers.registry import make_optimizer
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.objective import Constraint, Objective, PortableSeconds
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.ledger import Ledger, LedgerEvent
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.data.dataset import Dataset, load_dataset
from prefect_tune.tasks.data.split import Split, load_split
from prefect_tune.tasks.fitting.iterative import iterative_algorithms
from prefect_tune.tasks.objective.metric import Metric


def study_objective(
    metric: Metric,
    dataset: Dataset,
    split: Split,
    space: Space,
    *,
    constraints: tuple[Constraint, ...] = (),
    epochs: int | None = None,
    earlier_seconds: tuple[PortableSeconds, ...] = (),
) -> Objective:
    """Return the objective of a study; the test part of the split is not used."""
    n_classes, strata = len(dataset.classes), dataset.strata
    folds = [split.training(fold, strata) for fold in range(split.n_folds)]
    is_common = split.is_training & ~np.isin(strata, split.rare_classes(strata))
    common, n_strata = np.unique(strata[is_common]), int(strata.max()) + 1
    counts = np.array([np.bincount(strata[rows], minlength=n_strata)[common] for rows in folds])
    return replace(
        metric.objective(dataset.y[is_common], n_classes),
        constraints=constraints,
        n_rows=min(len(rows) for rows in folds),
        n_held_out=min(len(split.held_out(fold)) for fold in range(split.n_folds)),
        n_classes=n_classes,
        n_rarest=int(counts[counts > 0].min()),  # a forward fold may lack classes of newer rows
        n_folds=split.n_folds,
        n_columns=dataset.n_features,
        earlier_seconds=earlier_seconds,
        epochs=epochs,
        iterative=iterative_algorithms(space.steps[-1], n_classes) if epochs else frozenset(),
    )


@dataclass(slots=True)
class StudyTotals:
    """Totals over the trials of a study.

    Attributes:
        stopped: Trials with a loss from a partial evaluation.
        cache_hits: Fold steps served from the cache, failed trials included.
    """

    told: int = 0
    failed: int = 0
    stopped: int = 0
    cost_seconds: float = 0.0
    cache_hits: int = 0
    seconds_saved: float = 0.0

    def count(self, trial: Trial, times: int = 1) -> None:
        """Add a trial, or remove it with `times=-1`."""
        self.told += times * trial.is_told
        self.failed += times * (trial.state == TrialState.FAILED)
        self.stopped += times * (trial.state == TrialState.STOPPED)
        self.cost_seconds += times * trial.cost_seconds
        outcome = trial.evaluation or trial.failure
        for step in outcome.steps if outcome else ():
            if step.hit:
                self.cache_hits += times
                self.seconds_saved += times * (step.seconds - step.load_seconds)


class StudyTrials(Mapping[int, Trial]):
    """Trials by number, in the order of asking; the cost of an update is constant."""

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        self.totals = StudyTotals()
        self.configurations: set[Configuration] = set()
        self._trials: dict[int, Trial] = {}
        self._waiting: set[int] = set()
        for trial in trials:
            self.keep(trial)

    def __getitem__(self, number: int) -> Trial:
        return self._trials[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._trials)

    def __len__(self) -> int:
        return len(self._trials)

    def keep(self, trial: Trial) -> None:
        """Add or update a trial."""
        former = self._trials.get(trial.number)
        if former is None:
            self.configurations.add(trial.query.configuration)
        else:
            self.totals.count(former, -1)
        self._trials[trial.number] = trial
        self.totals.count(trial)
        if trial.state == TrialState.WAITING:
            self._waiting.add(trial.number)
        else:
            self._waiting.discard(trial.number)

    @property
    def waiting(self) -> list[Trial]:
        """Trials waiting to be started, by number."""
        return [self._trials[number] for number in sorted(self._waiting)]


def study_optimizer(store: ArtifactStore, plan: StudyPlan, space: Space) -> Optimizer:
    """Return the optimizer of a study before its first event."""
    problem = plan.problem
    objective = study_objective(
        problem.find_metric(),
        load_dataset(store, problem.dataset),
        load_split(store, problem.split),
        space,
        constraints=tuple(bounded.constraint for bounded in plan.options.bounds),
        epochs=plan.options.epochs,
        earlier_seconds=plan.earlier_seconds,
    )
    optimizer = make_optimizer(plan.method, space, problem.seed, objective, plan.options.option)
    if plan.start_configurations:
        start = (Configuration.from_json(known, space) for known in plan.start_configurations)
        optimizer.begin_with(start, plan.start_name)
    return Racing(optimizer) if plan.options.race else optimizer


class ReplayedEvents:
    """State of a study, read from its events.

    Attributes:
        trials: All trials, in the order of asking.
        ask_seconds: Duration of each ask.
        task_run_ids: Task run ids of ended trials by number, if recorded.
        failed_seconds: Seconds until the failure of each rerun trial, by number.
    """

    def __init__(self) -> None:
        self.trials = StudyTrials()
        self.ask_seconds: list[float] = []
        self.task_run_ids: dict[int, str] = {}
        self.failed_seconds: dict[int, float] = {}
        self._queries: dict[int, Query] = {}
        self._incumbents: list[tuple[float, int]] = []

    def read(self, ledger: Ledger, study: str, space: Space) -> Iterator[Event]:
        """Yield events in order; raise `ValueError` if the order is impossible."""
        failed: dict[int, float] = {}
        for event in ledger.each_event(study):
            self._check_order(event)
            if event.kind == Told.kind:
                # A trial shares the query of its ask, because parsing queries dominates the time.
                told = Told(Trial.from_json(event.body, space, self._query(event.body)))
                if told.trial.failure is not None:
                    failed[told.trial.number] = told.trial.failure.cost_seconds
                self._follow(event.body)
                yield told
                continue
            happened = event_of(event.kind, event.body, space)
            if isinstance(happened, Asked):
                self._queries[happened.number] = happened.query
                self.ask_seconds.append(event.body["seconds"])
            elif isinstance(happened, Retried) and happened.number in failed:
                self.failed_seconds[happened.number] = failed[happened.number]
            yield happened

    def curve(self, whole: Whole) -> IncumbentCurve:
        """Return the incumbents so far."""
        curve = IncumbentCurve()
        for seconds, number in self._incumbents:
            if (loss := self.trials[number].loss) is not None:
                curve.add(seconds, loss, whole.part(self.trials[number].query.to_json()))
        return curve

    def _query(self, told: Mapping[str, Any]) -> Query | None:
        """Return the query of a trial's ask, if it equals the query told."""
        asked = self._queries[told["number"]]
        return asked if asked.to_json() == told["query"] else None

    def _follow(self, told: Mapping[str, Any]) -> None:
        if task_run_id := told.get("task_run_id"):
            self.task_run_ids[told["number"]] = task_run_id
        best, former = told["incumbent"], self._incumbents[-1:]
        if best is not None and best not in [number for _, number in former]:
            # A killed process may not have recorded its last seconds.
            since = max(told["elapsed_seconds"], *(seconds for seconds, _ in former), 0.0)
            self._incumbents.append((since, best))

    def _check_order(self, event: LedgerEvent) -> None:
        """Check that trials are asked in order and before their other events."""
        if event.kind == PriorGiven.kind and event.sequence == 0:
            return
        number, n_asked = event.body["number"], len(self._queries)
        if number != n_asked if event.kind == Asked.kind else number not in self._queries:
            raise ValueError(
                f"event {event.sequence} ({event.kind}) of trial {number} is misplaced"
            )


def replayed_events(ledger: Ledger, study: str, optimizer: Optimizer) -> ReplayedEvents:
    """Bring a new optimizer to the state it had when the study stopped; return the other state.

    Raises `DatabaseDamaged` if documents in the ledger were changed or damaged.
    """
    events, space = ReplayedEvents(), optimizer.space
    with documents_of(study):
        happened = list(events.read(ledger, study, space))
    replay(optimizer, happened, ledger.memo(study))
    history = {trial.number: trial for trial in optimizer.history}
    with documents_of(study):
        for document in ledger.trials(study, TrialState.WAITING, TrialState.RUNNING):
            number = document["number"]
            history[number] = Trial.from_json(document, space, history[number].query)
    for trial in history.values():
        events.trials.keep(trial)
    return events
