"""The optimizer, objective and trials of a study, rebuilt from the ledger."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.flows.study.progress import StudyTotals
from prefect_tune.optimizers.events import Asked, Event, PriorGiven, Told, event_of, replay
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.racing import Racing
from prefect_tune.optimizers.registry import make_optimizer
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.objective import Constraint, Objective, PortableSeconds
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.data.dataset import Dataset, load_dataset
from prefect_tune.tasks.data.split import Split, load_split
from prefect_tune.tasks.fitting.epochs import iterative_algorithms
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
    """Return the objective of a study, which does not depend on the test rows."""
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
        n_rarest=int(counts[counts > 0].min()),  # early folds in time order may lack new classes
        n_folds=split.n_folds,
        n_columns=dataset.n_features,
        earlier_seconds=earlier_seconds,
        epochs=epochs,
        iterative=iterative_algorithms(space.steps[-1], n_classes) if epochs else frozenset(),
    )


class StudyTrials(dict[int, Trial]):
    """Trials by number, in the order of their proposals. Updates take constant time."""

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        self.totals = StudyTotals()
        self.configurations: set[Configuration] = set()
        self._waiting: set[int] = set()
        for trial in trials:
            self.keep(trial)

    def keep(self, trial: Trial) -> None:
        """Add or update a trial."""
        if (former := self.get(trial.number)) is not None:
            self.totals.count(former, -1)
        self.configurations.add(trial.query.configuration)
        self[trial.number] = trial
        self.totals.count(trial)
        self._waiting.discard(trial.number)
        if trial.state == TrialState.WAITING:
            self._waiting.add(trial.number)

    @property
    def waiting(self) -> list[Trial]:
        """Waiting trials, ordered by number."""
        return [self[number] for number in sorted(self._waiting)]


def study_optimizer(store: ArtifactStore, plan: StudyPlan, space: Space) -> Optimizer:
    """Return the optimizer of a study in its initial state, before any event."""
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
        is_portfolio = plan.options.start in {None, "portfolio"}
        name = "portfolio" if is_portfolio else f"best of {plan.options.start}"
        optimizer.begin_with(start, name)
    return Racing(optimizer) if plan.options.race else optimizer


def replayed(ledger: Ledger, study: str, optimizer: Optimizer) -> tuple[StudyTrials, list[float]]:
    """Bring a new optimizer to the state at the end of the latest session.

    Returns all trials in the order of their proposals, and the time each proposal took. Raises
    `DatabaseDamaged` if documents in the ledger were changed or damaged.
    """
    space, ask_seconds = optimizer.space, list[float]()
    queries, events = dict[int, Query](), list[Event]()
    with documents_of(study):
        for event in ledger.each_event(study):
            body: Mapping[str, Any] = event.body
            number: int = body.get("number", -1)
            if event.kind == Asked.kind:
                ask_seconds.append(body["seconds"])
                if number != len(queries):
                    raise ValueError(f"expected trial {len(queries)}; found trial {number}")
            elif event.kind != PriorGiven.kind and number not in queries:
                raise ValueError(f"event {event.sequence} needs trial {number}, which is missing")
            if event.kind == Told.kind:
                # Trials reuse the queries of their events, because parsing queries takes most of
                # the time.
                is_same = queries[number].to_json() == body["query"]
                query = queries[number] if is_same else None
                events.append(Told(Trial.from_json(body, space, query)))
                continue
            events.append(happened := event_of(event.kind, body, space))
            if isinstance(happened, Asked):
                queries[happened.number] = happened.query
    replay(optimizer, events, ledger.memo(study))
    trials = {trial.number: trial for trial in optimizer.history}
    with documents_of(study):
        for document in ledger.trials(study, TrialState.WAITING, TrialState.RUNNING):
            number = document["number"]
            trials[number] = Trial.from_json(document, space, trials[number].query)
    return StudyTrials(trials.values()), ask_seconds
