"""What a report gathers of trials and events, table by table."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.deployments.report import study_report as module
from prefect_tune.deployments.report.study_report import (
    StudyReport,
    reproduction_of,
    study_report,
    trade_offs_of,
)
from prefect_tune.flows.options.declared import StudyOptions
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.replayed import StudyTrials
from prefect_tune.optimizers import Asked, Budget, Evaluation, Failure, Query, StepCost, Told, Trial
from prefect_tune.optimizers.events import event_document
from prefect_tune.optimizers.importance import Importance
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.problem import Problem, algorithm_ids

SPACE = space_named("small")
PLAN = StudyPlan(
    options=StudyOptions(data="table.csv", target="target", folds=3, space=SPACE.name,
                         method="random", metric="error", constraint=(), seed=0),
    data_name="table",
    problem=Problem("data", "split", SPACE.name, SPACE.digest, "error", 0,
                    algorithms=algorithm_ids(SPACE)),
    chance_loss=50.0,
)  # fmt: skip
PART = {"fidelity": {"folds": 1}}


def query(seed: int, **fidelity: Any) -> Query:
    """One configuration for each seed."""
    return Query(sample_configuration(SPACE, np.random.default_rng(seed)), **fidelity)


def ended(number: int, loss: float, seed: int | None = None, **more: Any) -> Trial:
    """A trial with a loss, in full or of a `fidelity`."""
    asked = query(number if seed is None else seed, **more.pop("fidelity", {}))
    evaluation = Evaluation(loss, **{"fold_losses": (loss,) * 3, "cost_seconds": 1.0, **more})
    return Trial(number, asked).started().completed(evaluation)


def broken(number: int, message: str, **more: Any) -> Trial:
    kind = FailureKind(more.pop("kind", "error"))
    failure = Failure(kind, message, **{"cost_seconds": 2.0, **more})
    return Trial(number, query(number)).started().failed(failure)


def step(name: str, seconds: float = 1.0, *, hit: bool = False) -> StepCost:
    return StepCost(name, 0, seconds, 0.25, hit=hit, key="k")


def told(
    folder: Path, *trials: tuple[Trial, float, int | None], plan: StudyPlan = PLAN
) -> ArtifactStore:
    """A store whose study `s` was told trials at these seconds, with who led then."""
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
    """The report of a study that was told these trials."""

    def report(*trials: Trial | tuple[Trial, float, int | None], plan=PLAN) -> StudyReport:
        tells = [of if isinstance(of, tuple) else (of, 1.0, None) for of in trials]
        store = told(tmp_path, *tells, plan=plan)
        found = study_report(store, "s")
        store.close()
        return found

    return report


def test_partial_evaluations_count_as_one_use_of_an_algorithm(reported) -> None:
    report = reported(ended(0, 20.0, seed=1, **PART), ended(1, 18.0, seed=1), broken(2, "no"))
    uses = report.algorithms.groupby("step")["configurations"].sum()
    assert set(uses) == {2}
    best = report.paths.iloc[0]
    assert tuple(best.iloc[: len(uses)]) == query(1).configuration.path
    assert (best["configurations"], best["best"], best["trial"], best["median"]) == (1, 18, 1, 18)
    models = report.algorithms[report.algorithms["step"] == report.algorithms["step"].iloc[-1]]
    assert models["algorithm"].iloc[0] == query(1).configuration.path[-1]  # the best comes first


def test_a_configuration_that_failed_and_then_ran_has_not_failed(reported) -> None:
    report = reported(broken(0, "no"), ended(0, 5.0))
    assert report.paths["failed"].tolist() == [0]


def test_seconds_of_steps_are_summed_in_pipeline_order(reported) -> None:
    steps = [step("impute", 2.0), step("fit model", 4.0, hit=True)]
    report = reported(
        ended(0, 1.0, steps=tuple(steps)),
        ended(1, 1.0, steps=(step("impute", hit=True), step("rescale"), step("fit model"))),
        broken(2, "no", steps=(step("impute", 8.0),)),
    )
    times = report.step_times.set_index("step")
    assert list(times.index) == ["impute", "rescale", "fit model"]
    impute, model = times.loc["impute"], times.loc["fit model"]
    assert (impute["made"], impute["made_seconds"], impute["served"]) == (2, 10.0, 1)
    assert (model["served"], model["saved_seconds"], model["load_seconds"]) == (1, 3.75, 0.5)


def test_show_report_and_progress_have_equal_cache_savings(tmp_path) -> None:
    served = step("impute", 3.0, hit=True)
    trials = [
        ended(0, 1.0, steps=(step("impute"), step("fit model"))),
        broken(1, "no", steps=(served, step("rescale"))),
        ended(2, 1.0, steps=(served, step("fit model"))),
    ]
    store = told(tmp_path, *((trial, 1.0, 0) for trial in trials))
    summed = read_study(store, "s").to_json()["cache"]
    steps, live = study_report(store, "s").step_times, StudyTrials(trials).totals
    store.close()
    assert summed["seconds_saved"] == steps["saved_seconds"].sum() == live.seconds_saved == 5.5
    assert summed["hits"] == steps["served"].sum() == live.cache_hits == 2
    assert summed["misses"] == steps["made"].sum() == 4


def test_messages_that_differ_in_numbers_are_grouped(reported) -> None:
    groups = reported(
        broken(0, "column 3 is empty", step="encode", traceback="first"),
        broken(1, "took more than 15 s", kind="timeout"),
        broken(2, "column 14 is empty", step="encode", traceback="second"),
        broken(3, "column 3 is empty", step="rescale"),
        ended(4, 1.0),
    ).failures
    assert [group.trials for group in groups] == [[0, 2], [1], [3]]
    assert (groups[0].message, groups[0].traceback) == ("column 3 is empty", "first")
    assert groups[0].seconds == 4.0


def test_long_messages_keep_their_beginning_and_tracebacks_their_end(reported) -> None:
    long = "x" * 1_980 + "postgresql://me:secret@host/d" + "y" * 10**6
    [group] = reported(
        broken(0, long, traceback="x" * 10**6 + "end"), broken(1, long + "z")
    ).failures
    assert group.trials == [0, 1]
    assert len(group.traceback) == 20_000
    assert group.traceback.endswith("end")
    assert 2_000 <= len(group.message) <= 2_001
    assert "sec" not in group.message  # masked before it is cut


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30))
def test_the_trade_off_has_the_undominated_trials(pairs) -> None:
    measured = [{"latency_us": float(value)} for _, value in pairs]
    trials = [
        ended(n, float(loss), seed=0, constraints=of)
        for n, ((loss, _), of) in enumerate(zip(pairs, measured, strict=True))
    ]
    found = trade_offs_of([TrialView(trial.to_json()) for trial in trials])
    front = {pairs[trial] for trial in found[found["is_best"]]["trial"]}
    beaten = {
        (a, b) for a, b in pairs if any((c <= a and d <= b) and (c, d) != (a, b) for c, d in pairs)
    }
    assert front == set(pairs) - beaten


def test_only_full_trials_with_a_finite_quantity_are_compared() -> None:
    nan = ended(1, 1.0, constraints={"latency_us": float("nan")})
    partial = ended(2, 1.0, constraints={"latency_us": 3.0}, **PART)
    trials = ended(0, 1.0, constraints={"latency_us": 3.0}), nan, partial
    found = trade_offs_of([TrialView(trial.to_json()) for trial in trials])
    assert found["trial"].tolist() == [0]


def trained(number: int, seed: int, epochs: int | None, losses: list[float]) -> Trial:
    evaluation = Evaluation(min(losses), (min(losses),), 1.0, curve=tuple(losses), best_epoch=1)
    return Trial(number, query(seed, epochs=epochs)).started().completed(evaluation)


def test_partial_trainings_of_a_configuration_are_joined_to_one_curve(reported) -> None:
    report = reported(
        trained(0, 1, 2, [9.0, 8.0]),
        trained(1, 2, 2, [7.0, 7.5]),
        trained(2, 1, None, [9.0, 8.0, 6.0, 5.0]),
    )
    first, other = report.curves.to_dict("records")
    assert (first["trial"], first["losses"]) == (2, [9.0, 8.0, 6.0, 5.0])
    assert [of["trainings"] for of in (first, other)] == [2, 1]
    assert [of["state"] for of in (first, other)] == ["complete", "stopped"]
    levels = report.levels[["fidelity", "evaluated"]].to_numpy().tolist()
    assert levels == [["epochs 2", 2], ["full", 1]]


def test_a_study_without_ended_trials_has_empty_tables(reported, tmp_path) -> None:
    report = reported()
    for table in ("progress", "paths", "levels", "curves", "step_times", "trade_offs", "members"):
        assert getattr(report, table).empty
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")))
    event, trial = Asked(0, query(0), Budget()), Trial(0, query(0))
    ledger = Ledger(store.database)
    ledger.append("s", event.kind, event_document(event), trial.started().to_json())
    begun = study_report(store, "s")
    store.close()
    assert begun.progress.empty
    assert begun.paths["configurations"].tolist() == [1]


@pytest.fixture
def losses_of(reported, monkeypatch):
    """Those that the forests are given."""

    def losses(*trials: Trial) -> list[float]:
        given = []
        monkeypatch.setattr(module, "importance_of", lambda *a: given.append(a) or Importance(0))
        reported(*trials)
        [(_, configurations, losses, chance)] = given
        assert len(configurations) == len(losses)
        assert chance == 50.0
        return losses

    return losses


def test_importance_uses_the_first_fold_of_a_raced_configuration(losses_of) -> None:
    full = ended(0, 20.0, fold_losses=(18.0, 20.0, 22.0))
    part = ended(1, 30.0, fidelity={"folds": 1}, fold_losses=(30.0,))
    assert losses_of(full, part) == [20.0, 32.0]  # the first fold is the easier one


def test_importance_uses_the_trial_with_the_most_folds(losses_of) -> None:
    first = ended(0, 18.0, seed=4, fidelity={"folds": 1}, fold_losses=(18.0,))
    whole = ended(1, 20.0, seed=4, fold_losses=(18.0, 20.0, 22.0))
    other = ended(2, 20.0, seed=5, fold_losses=(14.0, 20.0, 26.0))
    assert losses_of(first, whole, other) == [20.0, 20.0]


def test_losses_of_few_rows_or_epochs_do_not_count(losses_of) -> None:
    few = ended(0, 9.0, fidelity={"subset": 0.25})
    young = ended(1, 9.0, fidelity={"epochs": 3}, curve=(9.0,) * 3)
    assert losses_of(few, young, ended(2, 5.0)) == [5.0]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"space_digest": "other"}, "differs in this version"),
        ({"space": "gone.py:space", "space_code": "import nothing_such"}, "nothing_such"),
    ],
)
def test_an_unavailable_space_is_reported_with_the_reason(reported, changed, reason) -> None:
    plan = replace(PLAN, problem=replace(PLAN.problem, **changed))
    assert reason in reported(ended(0, 1.0), plan=plan).importance.reason


def test_the_progress_table_is_ordered_by_the_end_of_trials(reported) -> None:
    a, b, c = ended(0, 5.0), ended(1, 7.0, fidelity={"folds": 1}), broken(2, "no")
    report = reported((b, 1.0, 1), (a, 2.5, 0), (c, 4.0, 0))
    progress = report.progress
    assert progress["trial"].tolist() == [1, 0, 2]
    assert progress["seconds"].tolist() == [1.0, 2.5, 4.0]
    assert progress["loss"].fillna(-1).tolist() == [7.0, 5.0, -1]
    assert progress["state"].tolist() == ["stopped", "complete", "failed"]
    assert progress["fidelity"].tolist() == ["folds 1 of 3", "full", "full"]
    assert set(progress["phase"]) == {"first"}
    assert report.incumbents[["seconds", "evaluations", "trial"]].to_numpy().tolist() == [
        [1.0, 1, 1], [2.5, 2, 0]
    ]  # fmt: skip
    assert report.incumbents["fidelity"].tolist() == ["folds 1 of 3", "full"]


def test_a_trial_that_ran_again_is_where_it_ended_last(reported) -> None:
    failed, other, again = broken(0, "no"), ended(1, 5.0), ended(0, 3.0)
    report = reported((failed, 1.0, None), (other, 2.0, 1), (again, 3.0, 0))
    assert report.progress["trial"].tolist() == [1, 0]
    leads = report.incumbents[["trial", "seconds", "evaluations"]].to_numpy().tolist()
    assert leads == [[1, 2.0, 1], [0, 3.0, 2]]  # each at its own place among the trials


def test_seconds_that_a_killed_session_forgot_do_not_run_backwards(reported) -> None:
    report = reported((ended(0, 5.0), 8.0, 0), (ended(1, 4.0), 6.0, 1))
    assert report.progress["seconds"].tolist() == [8.0, 8.0]


@pytest.mark.parametrize(("taken", "budget"), [(20.0, "60s"), (83.2, "168s")])
def test_the_command_that_searches_on_has_time_left(tmp_path, taken, budget) -> None:
    store = told(tmp_path, plan=replace(PLAN, options=replace(PLAN.options, budget=30.0)))
    study = open_study(store, "s")
    study.row = replace(study.row, seconds=taken)
    words = list(reproduction_of(study).longer)
    store.close()
    assert words[words.index("--budget") + 1] == budget
