"""What the figures of a report gather of trials and events, figure by figure."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.deployments.report.figures import importance as module
from prefect_tune.deployments.report.figures.failures import FailuresPass
from prefect_tune.deployments.report.figures.fidelities import FidelitiesPass
from prefect_tune.deployments.report.figures.importance import ImportancePass
from prefect_tune.deployments.report.figures.model import reproduction_of
from prefect_tune.deployments.report.figures.paths import PathsPass
from prefect_tune.deployments.report.figures.progress import Lead, ProgressPass, SearchProgress
from prefect_tune.deployments.report.figures.step_times import StepTimesPass
from prefect_tune.deployments.report.figures.trade_offs import TradeOffsPass
from prefect_tune.flows.options.declared import StudyOptions
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.replayed import StudyTrials
from prefect_tune.optimizers import Asked, Budget, Evaluation, Failure, Query, StepCost, Told, Trial
from prefect_tune.optimizers.events import event_document
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.outcome import FailureKind, TrialState
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress
from prefect_tune.storage.cache.index import ArtifactIndex
from prefect_tune.storage.ledger import StoredStudy
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.objective.declaration import Quantity, QuantityBound
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


@pytest.fixture
def index(tmp_path) -> Iterator[ArtifactIndex]:
    """The empty index of a new store."""
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")))
    yield store.index
    store.close()


def changed(**options: Any) -> StudyPlan:
    return replace(PLAN, options=replace(PLAN.options, **options))


LIMITED = changed(constraint=(QuantityBound(Quantity("latency_us"), 10.0),))


def query(seed: int, **fidelity: Any) -> Query:
    """One configuration for each seed."""
    return Query(sample_configuration(SPACE, np.random.default_rng(seed)), **fidelity)


def ended(number: int, loss: float, seed: int | None = None, **more: Any) -> Trial:
    """A trial with a loss, in full or of a `fidelity`."""
    asked = query(number if seed is None else seed, **more.pop("fidelity", {}))
    evaluation = Evaluation(loss, **{"fold_losses": (loss,) * 3, "cost_seconds": 1.0, **more})
    return Trial(number, asked).started().ended(evaluation)


def broken(number: int, message: str, **more: Any) -> Trial:
    kind = FailureKind(more.pop("kind", "error"))
    failure = Failure(kind, message, **{"cost_seconds": 2.0, **more})
    return Trial(number, query(number)).started().failed(failure)


def step(name: str, seconds: float = 1.0, *, hit: bool = False) -> StepCost:
    return StepCost(name, 0, seconds, 0.25, hit=hit, key="k")


def told(folder: Path, *trials: tuple[Trial, float, int | None]) -> ArtifactStore:
    """A store whose study `s` was told trials at these seconds, with who led then."""
    store = ArtifactStore(StoreAddress(str(folder / "store")))
    ledger, asked = Ledger(store.database), set[int]()
    ledger.create_study("s", PLAN.problem.to_json(), PLAN.to_json())
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


def taken(subject, *trials: Trial):
    for trial in trials:
        subject.add(TrialView(trial.to_json()))
    return subject


def test_stretches_of_a_configuration_are_one_use_of_its_algorithms() -> None:
    trials = [ended(0, 20.0, seed=1, **PART), ended(1, 18.0, seed=1), broken(2, "no")]
    found = taken(PathsPass(), *trials).found()
    uses = [use for step in found.steps for use in step.algorithms.values()]
    assert sum(use.n for use in found.steps[0].algorithms.values()) == 2
    assert all(use.n_full <= 1 for use in uses)
    path, best = found.best[0]
    assert tuple(path) == query(1).configuration.path
    assert (best.n, best.best_loss, best.best_trial, best.median_loss) == (1, 18.0, 1, 18.0)
    model = found.steps[-1].algorithms
    assert next(iter(model)) == query(1).configuration.path[-1]  # what has a loss comes first


def test_a_configuration_that_failed_and_then_ran_has_not_failed() -> None:
    again = ended(0, 5.0)
    found = taken(PathsPass(), broken(0, "no"), again).found()
    assert found.best[0][1].n_failed == 0


def test_steps_are_added_up_in_the_order_in_which_they_run(index) -> None:
    steps = [step("impute", 2.0), step("fit model", 4.0, hit=True)]
    trials = [
        ended(0, 1.0, steps=tuple(steps)),
        ended(1, 1.0, steps=(step("impute", hit=True), step("rescale"), step("fit model"))),
        broken(2, "no", steps=(step("impute", 8.0),)),
    ]
    found = taken(StepTimesPass(), *trials).found(index, "s")
    assert [of.step for of in found] == ["impute", "rescale", "fit model"]
    impute, _, model = found
    assert (impute.made, impute.made_seconds, impute.served) == (2, 10.0, 1)
    assert (model.served, model.saved_seconds, model.load_seconds) == (1, 3.75, 0.5)


def test_cache_savings_are_the_same_wherever_they_are_shown(tmp_path) -> None:
    served = step("impute", 3.0, hit=True)
    trials = [
        ended(0, 1.0, steps=(step("impute"), step("fit model"))),
        broken(1, "no", steps=(served, step("rescale"))),
        ended(2, 1.0, steps=(served, step("fit model"))),
    ]
    store = told(tmp_path, *((trial, 1.0, 0) for trial in trials))
    summed = read_study(store, "s").to_json()["cache"]
    steps = taken(StepTimesPass(), *trials).found(store.index, "s")
    live = StudyTrials(trials).totals
    store.close()
    saved = sum(of.saved_seconds for of in steps)
    assert summed["seconds_saved"] == saved == live.seconds_saved == 5.5
    assert summed["hits"] == sum(of.served for of in steps) == live.cache_hits == 2
    assert summed["misses"] == sum(of.made for of in steps) == 4


def test_failures_with_other_numbers_are_of_one_reason() -> None:
    trials = [
        broken(0, "column 3 is empty", step="encode", traceback="first"),
        broken(1, "took more than 15 s", kind="timeout"),
        broken(2, "column 14 is empty", step="encode", traceback="second"),
        broken(3, "column 3 is empty", step="rescale"),
        ended(4, 1.0),
    ]
    groups = taken(FailuresPass(), *trials).found()
    assert [group.trials for group in groups] == [[0, 2], [1], [3]]
    assert (groups[0].message, groups[0].traceback) == ("column 3 is empty", "first")
    assert groups[0].seconds == 4.0


def test_long_messages_keep_their_beginning_and_tracebacks_their_end() -> None:
    long = "x" * 1_980 + "postgresql://me:secret@host/d" + "y" * 10**6
    trials = broken(0, long, traceback="x" * 10**6 + "end"), broken(1, long + "z")
    [group] = taken(FailuresPass(), *trials).found()
    assert group.trials == [0, 1]
    assert len(group.traceback) == 20_000
    assert group.traceback.endswith("end")
    assert 2_000 <= len(group.message) <= 2_001
    assert "secret"[:3] not in group.message  # masked before it is cut


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30))
def test_the_front_is_what_nothing_beats_in_one_without_losing_in_the_other(pairs) -> None:
    trials = [
        ended(n, float(loss), seed=0, constraints={"latency_us": float(value)})
        for n, (loss, value) in enumerate(pairs)
    ]
    [found] = taken(TradeOffsPass(LIMITED), *trials).found()
    front = {pairs[i] for i in found.front}
    beaten = {
        (a, b) for a, b in pairs if any((c <= a and d <= b) and (c, d) != (a, b) for c, d in pairs)
    }
    assert front == set(pairs) - beaten
    assert found.bound == 10.0


def test_full_trials_without_a_quantity_are_counted() -> None:
    nan = ended(1, 1.0, constraints={"latency_us": float("nan")})
    trials = [ended(0, 1.0, constraints={"latency_us": 3.0}), nan, ended(2, 1.0, **PART)]
    [found] = taken(TradeOffsPass(LIMITED), *trials).found()
    assert (found.trials, found.n_unmeasured) == ([0], 1)


def trained(number: int, seed: int, epochs: int | None, losses: list[float]) -> Trial:
    evaluation = Evaluation(min(losses), (min(losses),), 1.0, curve=tuple(losses), best_epoch=1)
    return Trial(number, query(seed, epochs=epochs)).started().ended(evaluation)


def test_the_stretches_of_a_training_are_one_curve() -> None:
    trials = [
        trained(0, 1, 2, [9.0, 8.0]),
        trained(1, 2, 2, [7.0, 7.5]),
        trained(2, 1, None, [9.0, 8.0, 6.0, 5.0]),
    ]
    found = taken(FidelitiesPass(PLAN), *trials).found()
    first, other = found.curves
    assert (first.trials, first.losses, first.stops) == ([0, 2], [9.0, 8.0, 6.0, 5.0], [2])
    assert (first.is_complete, other.is_complete) == (True, False)
    assert [(level.text, level.ended) for level in found.levels] == [("epochs 2", 2), ("", 1)]


def test_of_many_curves_the_best_are_shown_and_others_evenly() -> None:
    trials = [trained(n, n, 2, [100.0 - n, 99.0 - n]) for n in range(300)]
    found = taken(FidelitiesPass(PLAN), *trials).found()
    assert found.n_curves == len({trial.query.configuration for trial in trials}) > 200
    assert 100 <= len(found.curves) <= 120
    shown = {curve.trial for curve in found.curves}
    assert set(range(250, 300)) <= shown
    assert any(trial < 60 for trial in shown)


@pytest.mark.parametrize("state", [TrialState.WAITING, TrialState.RUNNING])
def test_what_has_not_ended_is_in_no_figure_but_the_paths(state, index) -> None:
    trial = Trial(0, query(0))
    trial = trial if state == TrialState.WAITING else trial.started()
    assert taken(StepTimesPass(), trial).found(index, "s") == []
    assert taken(FailuresPass(), trial).found() == []
    assert taken(FidelitiesPass(PLAN), trial).found().levels == []
    assert taken(PathsPass(), trial).found().n == 1


def losses_of(monkeypatch, *trials) -> list[float]:
    """Those that the forests are given."""
    given = []
    monkeypatch.setattr(module, "importance_of", lambda *a: given.append(a) or module.Importance(0))
    taken(ImportancePass(PLAN), *trials).found()
    [(_, configurations, losses, chance)] = given
    assert len(configurations) == len(losses)
    assert chance == 50.0
    return losses


def test_a_configuration_that_a_race_ended_counts_by_its_first_fold(monkeypatch) -> None:
    full = ended(0, 20.0, fold_losses=(18.0, 20.0, 22.0))
    part = ended(1, 30.0, fidelity={"folds": 1}, fold_losses=(30.0,))
    assert losses_of(monkeypatch, full, part) == [20.0, 32.0]  # the first fold is the easier one


def test_each_configuration_counts_once_by_most_of_its_folds(monkeypatch) -> None:
    first = ended(0, 18.0, seed=4, fidelity={"folds": 1}, fold_losses=(18.0,))
    whole = ended(1, 20.0, seed=4, fold_losses=(18.0, 20.0, 22.0))
    other = ended(2, 20.0, seed=5, fold_losses=(14.0, 20.0, 26.0))
    assert losses_of(monkeypatch, first, whole, other) == [20.0, 20.0]


def test_losses_of_few_rows_or_epochs_do_not_count(monkeypatch) -> None:
    few = ended(0, 9.0, fidelity={"subset": 0.25})
    young = ended(1, 9.0, fidelity={"epochs": 3}, curve=(9.0,) * 3)
    assert losses_of(monkeypatch, few, young, ended(2, 5.0)) == [5.0]


def test_an_unavailable_space_is_reported_with_the_reason() -> None:
    for changed, said in (
        ({"space_digest": "other"}, "the space has changed"),
        ({"space": "gone.py:space", "space_code": "import nothing_such"}, "nothing_such"),
    ):
        subject = ImportancePass(replace(PLAN, problem=replace(PLAN.problem, **changed)))
        assert said in taken(subject, ended(0, 1.0)).found().reason


def test_a_fault_of_the_mathematics_is_not_taken_for_one_of_the_space(monkeypatch) -> None:
    def faulty(*_: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(module, "importance_of", faulty)
    with pytest.raises(ZeroDivisionError, match="a fault of ours"):
        ImportancePass(PLAN).found()


def found(store, *trials) -> SearchProgress:
    result = taken(ProgressPass(PLAN), *trials).found(Ledger(store.database), "s")
    store.close()
    return result


def test_trials_stand_in_the_order_in_which_they_ended(tmp_path) -> None:
    a, c = ended(0, 5.0), broken(2, "no")
    b = ended(1, 7.0, fidelity={"folds": 1})
    store = told(tmp_path, (b, 1.0, 1), (a, 2.5, 0), (c, 4.0, 0))
    progress = found(store, a, b, c)
    assert list(progress.number) == [1, 0, 2]
    assert list(progress.seconds) == [1.0, 2.5, 4.0]
    assert list(progress.loss) == [7.0, 5.0, None]
    assert list(progress.state) == ["stopped", "complete", "failed"]
    assert list(progress.fidelity) == ["folds 1 of 3", "", ""]
    assert set(progress.phase) == {"first"}
    leads = [Lead(1.0, 1, 1, 7.0, "folds 1 of 3"), Lead(2.5, 2, 0, 5.0)]
    assert progress.leads == leads  # as the method said it, and of what each loss is


def test_a_trial_that_ran_again_is_where_it_ended_last(tmp_path) -> None:
    failed, other, again = broken(0, "no"), ended(1, 5.0), ended(0, 3.0)
    store = told(tmp_path, (failed, 1.0, None), (other, 2.0, 1), (again, 3.0, 0))
    progress = found(store, again, other)
    assert list(progress.number) == [1, 0]
    leads = [(lead.trial, lead.seconds, lead.told) for lead in progress.leads]
    assert leads == [(1, 2.0, 1), (0, 3.0, 2)]  # each at its own place among the trials


def test_who_does_not_lead_by_what_the_method_says_does_not(tmp_path) -> None:
    a, b = ended(0, 5.0), ended(1, 6.0)
    progress = found(told(tmp_path, (a, 1.0, None), (b, 2.0, 1)), a, b)
    assert [lead.trial for lead in progress.leads] == [1]


def test_seconds_that_a_killed_session_forgot_do_not_run_backwards(tmp_path) -> None:
    a, b = ended(0, 5.0), ended(1, 4.0)
    progress = found(told(tmp_path, (a, 8.0, 0), (b, 6.0, 1)), a, b)
    assert list(progress.seconds) == [8.0, 8.0]


@pytest.mark.parametrize(("taken", "budget"), [(20.0, "60s"), (83.2, "168s")])
def test_the_command_that_searches_on_has_time_left(taken, budget) -> None:
    study = StoredStudy("s", 0.0, "new", {}, {}, {}, taken)
    words = reproduction_of(study, changed(budget=30.0)).longer
    assert words[words.index("--budget") + 1] == budget
