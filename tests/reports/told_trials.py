"""Trials of the space `small` as documents of the ledger, and a ledger that was told them."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prefect_tune.flows.options.declared import StudyOptions
from prefect_tune.flows.study.documents import TrialDocument
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers import Asked, Budget, Evaluation, Failure, Query, StepCost, Told, Trial
from prefect_tune.optimizers.events import event_document
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.objective.declaration import Quantity, QuantityBound
from prefect_tune.tasks.problem import Problem, algorithm_ids

SPACE = space_named("small")
PLAN = StudyPlan(
    options=StudyOptions(
        data="table.csv", target="target", test_size=0.2, folds=3, space=SPACE.name,
        method="random", metric="error", constraint=(), race=False, seed=0,
    ),
    data_name="table",
    problem=Problem(
        "data", "split", SPACE.name, SPACE.digest, "error", 0, algorithms=algorithm_ids(SPACE)
    ),
    chance_loss=50.0,
)  # fmt: skip
LIMITED = replace(
    PLAN,
    options=replace(PLAN.options, constraint=(QuantityBound(Quantity("latency_us"), 10.0),)),
)


def query(seed: int, **fidelity: Any) -> Query:
    """One configuration for each seed."""
    return Query(sample_configuration(SPACE, np.random.default_rng(seed)), **fidelity)


def ended(number: int, loss: float, seed: int | None = None, **more: Any) -> Trial:
    """A trial with a loss, in full or of a `fidelity`."""
    asked = query(number if seed is None else seed, **more.pop("fidelity", {}))
    evaluation = Evaluation(loss, **{"fold_losses": (loss,) * 3, "cost_seconds": 1.0, **more})
    return Trial(number, asked).started().ended(evaluation)


def broken(number: int, message: str, **more: Any) -> Trial:
    failure = Failure(
        FailureKind(more.pop("kind", "error")), message, **{"cost_seconds": 2.0, **more}
    )
    return Trial(number, query(number)).started().failed(failure)


def step(name: str, seconds: float = 1.0, *, hit: bool = False) -> StepCost:
    return StepCost(name, 0, seconds, 0.25, hit=hit, key="k")


def documents(trials: Iterable[Trial]) -> list[TrialDocument]:
    return [TrialDocument(trial.to_json()) for trial in trials]


def told(folder: Path, *trials: tuple[Trial, float, int | None]) -> ArtifactStore:
    """A store whose study `s` was told trials at these seconds, with who led then."""
    store = ArtifactStore(StoreAddress(str(folder / "store")))
    ledger, asked = Ledger(store.database), set[int]()
    ledger.create_study("s", PLAN.problem.to_json(), PLAN.to_json())
    for trial, seconds, lead in trials:
        if trial.number not in asked:
            asked.add(trial.number)
            event = Asked(trial.number, trial.query, Budget())
            body = {
                **event_document(event),
                "seconds": 0.1,
                "reason": {"phase": "first", "text": ""},
            }
            ledger.append("s", event.kind, body, Trial(trial.number, trial.query).to_json())
        body = {**trial.to_json(), "elapsed_seconds": seconds, "incumbent": lead}
        ledger.append("s", Told.kind, body, trial.to_json())
    return store
