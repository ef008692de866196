"""Scoring the incumbents of a replicate, on workers that fit nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from studies import context_of, store_of
from worlds import evaluation

from prefect_tune.flows.comparison.comparison import Entrant, Replicate
from prefect_tune.flows.comparison.replicate import _message, _score, replicate_context
from prefect_tune.flows.preparation.prepare import PreparedStudy
from prefect_tune.flows.study.plan import StopRule, StudyPlan
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import Budget, Optimizer, Trial
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.storage import Ledger
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.fitting.final_scoring import LossOnTest

OBSERVER: Any = SimpleNamespace(note=lambda _: None, check=lambda: None)
CHOSEN = (0, 1, 1, 0)
"""Incumbent after each trial: of four in a budget of eight."""


@dataclass
class WrittenWorkers:
    """Workers whose fits have the loss of the trial's number; those of `broken` cannot be done."""

    fitted: list[int] = field(default_factory=list)
    epochs: list[int | None] = field(default_factory=list)
    broken: frozenset[int] = frozenset()
    undefined: str = ""

    def run(self, task: Any, parameters: Mapping[str, Any], **_: Any) -> Any:
        if task.name == "score":
            loss = None if self.undefined else float(self.fitted[-1])
            return SimpleNamespace(test=LossOnTest(loss, self.undefined))
        (member,) = parameters["members"]
        self.fitted.append(member.number)
        self.epochs.append(member.query["epochs"])
        if member.number in self.broken:
            raise RuntimeError("no worker came back")
        return SimpleNamespace(seconds=1.0)


def chosen(optimizer: Optimizer) -> Trial | None:
    told = [t for t in optimizer.history if t.is_told]
    return optimizer.history[CHOSEN[len(told) - 1]] if told else None


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Study]:
    """Full trials, of which the method comes back to the first, which ran on a subset."""
    context = context_of(tmp_path)
    plan = StudyPlan(
        source=Source(str(tmp_path / "table.csv"), target="target"), data_name="table",
        problem=context.problem, folds=3, holdout=None, test_size=0.2, positive=None,
        chance_loss=40.0, method="random", stop_rule=StopRule(trials=8),
    )  # fmt: skip
    store = store_of(context)
    Ledger(store.database).create_study("c-0-random", plan.problem.to_json(), plan.to_json())
    with Study.opened(store, "c-0-random", plan) as study:
        monkeypatch.setattr(type(study.optimizer), "incumbent", property(chosen))
        propose = study.optimizer._propose
        monkeypatch.setattr(
            study.optimizer,
            "_propose",
            lambda *of: replace(propose(*of), subset=1.0 if study.trials else 0.5),
        )
        for loss in (4.0, 3.0, 2.0, 1.0):
            study.tell(study.start(study.ask(Budget())).ended(evaluation(loss)))
        yield study


def score(study: Study, workers: Any) -> dict[str, Any]:
    prepared = PreparedStudy(study.name, study.plan, study.store)
    _score(study, workers, Replicate(Entrant("random", "random"), 0, prepared), OBSERVER)
    return {name: study.result.get(name) for name in ("test_losses", "members", "test_loss")}


def test_the_model_is_that_of_the_end_though_it_led_before(study: Study) -> None:
    workers = WrittenWorkers()
    found = score(study, workers)
    assert workers.fitted == [1, 0]
    assert found["test_losses"] == {"0": 0.0, "1": 1.0}
    assert (found["members"], found["test_loss"]) == ([{"trial": 0, "weight": 1}], 0.0)
    score(study, workers)
    assert workers.fitted == [1, 0]  # nothing is left to do


def test_what_could_not_be_fitted_is_tried_again_and_the_model_stays(study: Study) -> None:
    broken = score(study, WrittenWorkers(broken=frozenset({1})))
    assert broken["test_losses"] == {"0": 0.0, "1": None}
    assert broken["members"] == [{"trial": 0, "weight": 1}]
    workers = WrittenWorkers()
    found = score(study, workers)
    assert workers.fitted == [1, 0]
    assert (found["members"], found["test_loss"]) == ([{"trial": 0, "weight": 1}], 0.0)


def test_a_loss_that_the_test_rows_leave_undefined_is_not_computed_again(study: Study) -> None:
    found = score(study, WrittenWorkers(undefined="one class"))
    assert found["test_losses"] == {"0": None, "1": None}
    assert found["members"] == [{"trial": 0, "weight": 1}]
    assert study.result["test_losses_undefined"] == {"0": "one class", "1": "one class"}
    workers = WrittenWorkers()
    score(study, workers)
    assert workers.fitted == []


def test_the_outcome_says_that_the_loss_is_of_a_subset(study: Study) -> None:
    score(study, WrittenWorkers())
    assert study.incumbent is not None
    assert _message(study, study.incumbent).startswith(
        "error 4 (subset 1/2), on the test rows 0; 4 trials, 0 failed"
    )


@pytest.mark.parametrize("epochs", [None, 10])
def test_workers_know_of_how_many_epochs_a_full_training_is(study: Study, epochs) -> None:
    plan = replace(study.plan, epochs=epochs)
    prepared = PreparedStudy(study.name, plan, study.store)
    context = replicate_context(Replicate(Entrant("random", "random"), 0, prepared))
    assert context.epochs == epochs


@pytest.mark.parametrize(
    ("method", "options", "bootstraps"),
    [
        ("random", {}, None),
        ("ers", {}, Bootstraps(30, 0.5)),
        ("esmbo", {"n_histories": 7, "share": 1.0}, Bootstraps(7, 1.0)),
    ],
)
def test_workers_know_of_the_bootstraps_that_the_method_needs(
    study: Study, method: str, options: dict[str, Any], bootstraps: Bootstraps | None
) -> None:
    plan = replace(study.plan, method=method, options=options)
    prepared = PreparedStudy(study.name, plan, study.store)
    context = replicate_context(Replicate(Entrant(method, method), 0, prepared))
    assert context.bootstraps == bootstraps


def test_the_method_says_of_how_many_epochs_its_final_model_is(study: Study, monkeypatch) -> None:
    monkeypatch.setattr(
        study.optimizer, "refit", lambda trial: replace(trial.query, epochs=trial.number + 3)
    )
    workers = WrittenWorkers()
    score(study, workers)
    assert workers.epochs == [1 + 3, 0 + 3]
