"""Tables that a report makes from trials and events."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flow_studies import changed, plan

from prefect_tune.deployments.report import study_report as module
from prefect_tune.deployments.report.study_report import (
    COST,
    StudyReport,
    reproduction_of,
    study_report,
    trade_offs_of,
)
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.facts import StudyFacts
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.replayed import StudyTrials
from prefect_tune.optimizers import Asked, Budget, Evaluation, Failure, Query, StepCost, Told, Trial
from prefect_tune.optimizers.documents import to_document
from prefect_tune.optimizers.events import event_document
from prefect_tune.optimizers.importance import Importance
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.problem import Problem, algorithm_ids

SPACE = space_named("small")
PROBLEM = Problem(
    "data", "split", SPACE.name, SPACE.digest, "error", 0, algorithms=algorithm_ids(SPACE)
)
PLAN = plan(problem=PROBLEM, chance_loss=50.0)
PART = {"fidelity": {"folds": 1}}
IMPACT = "disparate_impact(g)"  # more is better


def query(seed: int, **fidelity: Any) -> Query:
    """Return one configuration for each seed."""
    return Query(sample_configuration(SPACE, np.random.default_rng(seed)), **fidelity)


def ended(number: int, loss: float, seed: int | None = None, **more: Any) -> Trial:
    """Return a trial with a loss, full or partial."""
    asked = query(number if seed is None else seed, **more.pop("fidelity", {}))
    evaluation = Evaluation(loss, **{"fold_losses": (loss,) * 3, "cost_seconds": 1.0, **more})
    return Trial(number, asked).started().completed(evaluation)


def trained(number: int, seed: int, epochs: int | None, losses: list[float]) -> Trial:
    """Return a trial of a model that trains in epochs."""
    curve = {"curve": tuple(losses), "best_epoch": 1, "fold_losses": (min(losses),)}
    return ended(number, min(losses), seed, fidelity={"epochs": epochs}, **curve)


def broken(number: int, **more: Any) -> Trial:
    failure = Failure(FailureKind.ERROR, "no", cost_seconds=2.0, **more)
    return Trial(number, query(number)).started().failed(failure)


def step(name: str, seconds: float = 1.0, *, hit: bool = False) -> StepCost:
    return StepCost(name, 0, seconds, 0.25, hit=hit, key="k")


def told(
    folder: Path, *trials: tuple[Trial, float, int | None], plan: StudyPlan = PLAN
) -> ArtifactStore:
    """Return a store whose study `s` was told these trials and incumbents at these seconds."""
    store = ArtifactStore(StoreAddress(str(folder / "store")))
    ledger, asked = Ledger(store.database), set[int]()
    ledger.create_study("s", plan.problem.to_json(), plan.to_json())
    for trial, seconds, lead in trials:
        if trial.number not in asked:
            asked.add(trial.number)
            event = Asked(trial.number, trial.query, Budget())
            reason = {"seconds": 0.1, "reason": {"phase": "first", "text": ""}}
            body = event_document(event) | reason
            ledger.append("s", event.kind, body, Trial(trial.number, trial.query).to_json())
        body = {**trial.to_json(), "elapsed_seconds": seconds, "incumbent": lead}
        ledger.append("s", Told.kind, body, trial.to_json())
    return store


@pytest.fixture
def reported(tmp_path):
    """Return the report of a study with these trials."""

    def report(*trials: Trial | tuple[Trial, float, int | None], plan=PLAN) -> StudyReport:
        tells = [of if isinstance(of, tuple) else (of, 1.0, None) for of in trials]
        store = told(tmp_path, *tells, plan=plan)
        found = study_report(store, "s")
        store.close()
        return found

    return report


def test_partial_evaluations_count_as_one_use_of_an_algorithm(reported) -> None:
    report = reported(
        ended(0, 20.0, seed=1, **PART), ended(1, 18.0, seed=1), broken(2), broken(5),
        ended(5, 19.0),
    )  # fmt: skip
    uses = report.algorithms.groupby("step")["configurations"].sum()
    assert set(uses) == {3}
    best = report.paths.iloc[0]
    assert tuple(best.iloc[: len(uses)]) == query(1).configuration.path
    assert (best["configurations"], best["best"], best["trial"], best["median"]) == (1, 18, 1, 18)
    models = report.algorithms[report.algorithms["step"] == report.algorithms["step"].iloc[-1]]
    assert models["algorithm"].iloc[0] == query(1).configuration.path[-1]  # the best comes first
    assert report.paths["failed"].sum() == 1  # what failed and then ran has not failed
    assert [group.trials for group in report.failures] == [[2]]


def test_report_and_show_and_running_study_agree_on_saved_seconds(
    tmp_path,
) -> None:
    served = step("impute", 3.0, hit=True)
    trials = [
        ended(0, 1.0, steps=(step("impute", 2.0), step("fit model"))),
        broken(1, steps=(served, step("rescale"))),
        ended(2, 1.0, steps=(served, step("fit model", 4.0))),
    ]
    store = told(tmp_path, *((trial, 1.0, 0) for trial in trials))
    summed = read_study(store, "s").to_json()["cache"]
    steps, live = study_report(store, "s").step_times, StudyTrials(trials).totals
    store.close()
    assert summed["seconds_saved"] == steps["saved_seconds"].sum() == live.seconds_saved == 5.5
    assert summed["hits"] == steps["served"].sum() == live.cache_hits == 2
    assert summed["misses"] == steps["made"].sum() == 4
    assert steps["step"].tolist() == ["impute", "rescale", "fit model"]  # of the pipeline
    assert steps["made_seconds"].tolist() == [2.0, 1.0, 5.0]
    assert steps["load_seconds"].tolist() == [0.75, 0.25, 0.5]


def test_trade_off_lists_only_undominated_full_trials() -> None:
    pairs = [(1, 5), (2, 3), (2, 4), (3, 3), (4, 1), (4, 1), (5, 0)]
    trials = [
        ended(n, float(loss), seed=0, constraints={"latency_us": value, IMPACT: -value})
        for n, (loss, value) in enumerate(pairs)
    ]
    trials.append(ended(len(pairs), -1.0, constraints={"latency_us": float("nan")}))
    trials.append(ended(len(pairs) + 1, -1.0, constraints={"latency_us": -1.0}, **PART))
    found = trade_offs_of([TrialView(trial.to_json()) for trial in trials])
    assert set(found["quantity"]) == {"latency_us", IMPACT, COST}
    for quantity in ("latency_us", IMPACT):
        is_front = found["is_best"] & (found["quantity"] == quantity)
        front = [pairs[trial] for trial in found[is_front]["trial"]]
        assert front == [(1, 5), (2, 3), (4, 1), (5, 0)]


def test_study_without_ended_trials_has_empty_tables(tmp_path) -> None:
    store = told(tmp_path)
    report = study_report(store, "s")
    for table in ("progress", "paths", "step_times", "trade_offs", "members"):
        assert getattr(report, table).empty
    event, trial = Asked(0, query(0), Budget()), Trial(0, query(0))
    ledger = Ledger(store.database)
    ledger.append("s", event.kind, event_document(event), trial.started().to_json())
    begun = study_report(store, "s")
    store.close()
    assert begun.progress.empty
    assert begun.paths["configurations"].tolist() == [1]


def test_notes_name_values_of_the_data_only_on_request(tmp_path) -> None:
    store = told(tmp_path)
    notes = (
        "column a holds strings, such as 'Ann'; see Ann",
        "a table, numbers from 1.5 to 9 in y",
        "reading t.csv: 9 rows, 2 columns; classes a: 7, Ann: 2",
        "1 class with 2 rows (Ann: 2) cannot be held out",
        "the rarest class, Ann, has 22% of the rows",
    )
    Ledger(store.database).update_study("s", result=to_document(StudyFacts(notes=notes)))
    named, hidden = (study_report(store, "s", rare_values=on).notes for on in (True, False))
    store.close()
    assert tuple(named) == notes
    assert hidden == [
        "column a holds strings", "a table, numbers in y", "reading t.csv: 9 rows, 2 columns",
        "1 class with 2 rows cannot be held out", "the rarest class has 22% of the rows",
    ]  # fmt: skip


FOLDS = (18.0, 20.0, 22.0)


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        # A configuration with one fold: the first fold is the easier one.
        ([ended(0, 20.0, fold_losses=FOLDS), ended(1, 30.0, **PART, fold_losses=(30.0,))],
         [20.0, 32.0]),
        # The trial with the most folds counts.
        ([ended(0, 18.0, 4, **PART, fold_losses=(18.0,)), ended(1, 20.0, 4, fold_losses=FOLDS),
          ended(2, 20.0, 5, fold_losses=(14.0, 20.0, 26.0))],
         [20.0, 20.0]),
        # Losses of few rows or epochs do not count.
        ([ended(0, 9.0, fidelity={"subset": 0.25}), trained(1, 1, 3, [9.0] * 3), ended(2, 5.0)],
         [5.0]),
    ],
)  # fmt: skip
def test_importance_is_learned_from_comparable_losses(
    reported, monkeypatch, trials, expected
) -> None:
    given = []
    monkeypatch.setattr(module, "importance_of", lambda *a: given.append(a) or Importance(0))
    reported(*trials)
    [(_, configurations, losses, chance)] = given
    assert (losses, len(configurations), chance) == (expected, len(expected), 50.0)


def test_progress_is_ordered_by_the_last_end_of_each_trial(reported) -> None:
    part = ended(1, 7.0, **PART)
    report = reported(
        (broken(0), 0.5, None), (part, 1.0, 1), (broken(2), 2.0, 1),
        (ended(0, 5.0), 3.5, 0), (ended(3, 4.0), 3.0, 3),  # of a killed session, which forgot
    )  # fmt: skip
    progress = report.progress
    assert progress["trial"].tolist() == [1, 2, 0, 3]
    assert progress["seconds"].tolist() == [1.0, 2.0, 3.5, 3.5]
    assert progress["loss"].fillna(-1).tolist() == [7.0, -1, 5.0, 4.0]
    assert progress["state"].tolist() == ["complete", "failed", "complete", "complete"]
    assert progress["is_partial"].tolist() == [True, False, False, False]
    assert progress["fidelity"].tolist() == ["folds 1 of 3", "full", "full", "full"]
    assert set(progress["phase"]) == {"first"}
    leads = report.incumbents[["trial", "evaluations", "fidelity"]].to_numpy().tolist()
    assert leads == [[1, 1, "folds 1 of 3"], [0, 3, "full"], [3, 4, "full"]]


@pytest.mark.parametrize(("taken", "budget"), [(20.0, "60s"), (83.2, "168s")])
def test_command_that_continues_the_search_has_a_larger_budget(tmp_path, taken, budget) -> None:
    store = told(tmp_path, plan=changed(PLAN, budget=30.0))
    study = open_study(store, "s")
    study.row = replace(study.row, seconds=taken)
    words = list(reproduction_of(study).longer)
    store.close()
    assert words[words.index("--budget") + 1] == budget
