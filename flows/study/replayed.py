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


@dataclass(frozen=True, slots=True)
class Replayed:
    """State of a study, replayed from its events.

    Attributes:
        task_run_ids: Task run ids of ended trials by number, if recorded.
        failed_seconds: Seconds until the failure of each rerun trial, by number.
    """

    optimizer: Optimizer
    trials: StudyTrials
    ask_seconds: list[float]
    task_run_ids: dict[int, str]
    failed_seconds: dict[int, float]
    curve: IncumbentCurve


def replayed_study(
    store: ArtifactStore, ledger: Ledger, study: str, plan: StudyPlan, space: Space
) -> Replayed:
    """Return the state of a study as if it had never stopped, under the plan of this session.

    Raises `DatabaseDamaged` if documents in the ledger were changed or damaged.
    """
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
    if plan.options.race:
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
        optimizer,
        trials,
        events.ask_seconds,
        events.task_run_ids,
        events.failed_seconds,
        events.curve(trials, plan.whole),
    )


class _Events:
    """Reader of a study's events; parses each query once, because parsing dominates the time."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._queries: dict[int, Query] = {}
        self.ask_seconds: list[float] = []
        self.task_run_ids: dict[int, str] = {}
        self.failed_seconds: dict[int, float] = {}
        self._failed: dict[int, float] = {}
        self._led: list[tuple[float, int]] = []

    def read(self, ledger: Ledger, study: str) -> Iterator[Event]:
        """Yield events in order; raise `ValueError` if the order is impossible."""
        for event in ledger.each_event(study):
            self._check_order(event)
            if event.kind == Told.kind:
                self._follow(event.body)
                yield Told(self._trial(event.body))
                continue
            happened = event_of(event.kind, event.body, self._space)
            if isinstance(happened, Asked):
                self._queries[happened.number] = happened.query
                self.ask_seconds.append(event.body["seconds"])
            elif isinstance(happened, Retried) and happened.number in self._failed:
                self.failed_seconds[happened.number] = self._failed[happened.number]
            yield happened

    def curve(self, trials: Mapping[int, Trial], whole: Whole) -> IncumbentCurve:
        curve = IncumbentCurve()
        for seconds, number in self._led:
            if (loss := trials[number].loss) is not None:
                curve.add(seconds, loss, whole.part(trials[number].query.to_json()))
        return curve

    def _follow(self, told: Mapping[str, Any]) -> None:
        if task_run_id := told.get("task_run_id"):
            self.task_run_ids[told["number"]] = task_run_id
        if failure := told["failure"]:
            self._failed[told["number"]] = failure["cost_seconds"]
        best = told["incumbent"]
        if best is not None and (not self._led or self._led[-1][1] != best):
            # A killed process may not have recorded its last seconds.
            since = self._led[-1][0] if self._led else 0.0
            self._led.append((max(told["elapsed_seconds"], since), best))

    def _check_order(self, event: LedgerEvent) -> None:
        """Check that trials are asked in order and before their other events."""
        if event.kind == PriorGiven.kind and event.sequence == 0:
            return
        number, n_asked = event.body["number"], len(self._queries)
        if number != n_asked if event.kind == Asked.kind else number not in self._queries:
            raise ValueError(
                f"event {event.sequence} ({event.kind}) of trial {number} is misplaced"
            )

    def _trial(self, document: Mapping[str, Any]) -> Trial:
        """Return a trial that shares the query object of its ask, if both queries are equal."""
        asked = self._queries.get(document["number"])
        is_same = asked is not None and asked.to_json() == document["query"]
        return Trial.from_json(document, self._space, asked if is_same else None)
