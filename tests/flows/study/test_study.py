"""A study between its ledger and its optimizer: events are stored first, and stay stored."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from socket import gethostname
from typing import Any

import pytest
import sklearn
from flow_studies import begin, changed, pinned, plan_of, tell
from processes import wait_for
from services import Postgres
from sqlalchemy import delete
from studies import context_of, store_of
from threadpoolctl import threadpool_info, threadpool_limits
from worlds import evaluation

from prefect_tune.flows.options.values import EnsembleRule
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.study import lease as lease_module
from prefect_tune.flows.study.facts import ModelFacts, WeightedTrial
from prefect_tune.flows.study.lease import study_lease
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import Budget, Failure
from prefect_tune.optimizers.trials.outcome import FailureKind, StepCost
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.database import DatabaseDamaged
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.schema import event_table
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.objective.metric import Quantity, QuantityBound

SIZE = QuantityBound(Quantity("model_size_bytes"), 50.0)
PICKY = Failure(FailureKind.ERROR, "took 3 of 9 columns", step="fit model", cost_seconds=0.5)


@pytest.fixture(
    scope="module",
    params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.slow, pytest.mark.full])],
)
def imported(
    request, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ArtifactStore, StudyPlan]]:
    """A store with the data of a plan."""
    folder = tmp_path_factory.mktemp("study")
    server = Postgres(folder / "postgres") if request.param == "postgresql" else None
    database = server.new_database() if server else ""
    context = context_of(folder, address=StoreAddress(str(folder / "store"), database))
    yield store_of(context), plan_of(context)
    store_of(context).close()
    if server:
        server.stop()


@pytest.fixture
def enter(imported, request) -> Callable[..., str]:
    """Enter a separate study into the ledger, and return its name."""
    store, plan = imported

    def entered(**changes: Any) -> str:
        name = request.node.name
        settled = changed(plan, **changes)
        problem, settings = settled.problem.to_json(), settled.to_json()
        assert Ledger(store.database).create_study(name, problem, settings)
        return name

    return entered


@pytest.fixture
def store(imported) -> ArtifactStore:
    return imported[0]


def run(study: Study, *losses: float | None) -> None:
    """Ask for trials and tell results: complete with a loss, or failed without a loss."""
    for loss in losses:
        tell(study, PICKY if loss is None else evaluation(loss))


def test_reopened_study_is_unchanged(store, enter) -> None:
    name = enter()
    with Study.opened(store, name) as study:
        run(study, 3.0, None, 2.0)
        pending = study.ask(Budget())
        trials, incumbent = dict(study.trials), study.incumbent
        following = study.optimizer.ask(Budget())
    with Study.opened(store, name) as again:
        assert again.trials == trials
        assert again.incumbent == incumbent == trials[2]
        assert again.next_waiting() == pending
        assert len(again.ask_seconds) == 4
        assert again.ask(Budget()).query == following


def test_study_with_a_missing_event_is_damaged(store, enter) -> None:
    name = enter()
    with Study.opened(store, name) as study:
        for _ in range(3):
            study.ask(Budget())
    event = event_table.c
    with store.database.write() as connection:
        connection.execute(delete(event_table).where(event.study == name, event.sequence == 1))
    with pytest.raises(DatabaseDamaged, match="expected trial"), Study.opened(store, name):
        pass


def test_stored_events_have_reasons_and_task_runs(store, enter) -> None:
    name = enter()
    with Study.opened(store, name) as study:
        run(study, None)
        study.tell(begin(study).completed(evaluation(1.0)), "run 1")
        study.retry(0)
        trial = begin(study)
        with pytest.raises(ValueError, match="nan"):  # what the optimizer refuses
            study.tell(trial.completed(evaluation(float("nan"))))
    ledger = Ledger(store.database)
    events = list(ledger.each_event(name))
    assert [event.kind for event in events] == ["ask", "tell", "ask", "tell", "retry", "ask"]
    assert events[0].body["reason"]["phase"] == "random"
    moments = open_study(store, name).moments()
    assert [m.task_run_id for m in moments.values()] == [None, "run 1", None]
    first, *_ = ledger.trials(name)
    assert (first["state"], first["attempts"], first["failure"]) == ("waiting", 1, None)


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_readers_find_the_incumbent_even_after_a_kill(store, enter, monkeypatch) -> None:
    name = enter()
    with Study.opened(store, name) as study:
        run(study, 3.0)
        monkeypatch.setattr(study, "record", killed)  # all is written with the event
        run(study, 4.0, 2.0)
    assert read_study(store, name).incumbent.trial == 2


def test_readers_find_the_nearest_trial_if_no_trial_is_feasible(store, enter) -> None:
    name = enter(constraint=(SIZE,))
    with Study.opened(store, name) as study:
        for loss, size in ((2.0, 70.0), (3.0, 60.0)):
            tell(study, replace(evaluation(loss), constraints={SIZE.quantity.text: size}))
        view = read_study(store, name)
        assert (view.incumbent, view.nearest_infeasible.trial) == (None, 1)
        tell(study, replace(evaluation(4.0), constraints={SIZE.quantity.text: 7.0}))
    view = read_study(store, name)
    assert (view.incumbent.trial, view.nearest_infeasible) == (2, None)


def test_trials_left_running_by_a_dead_process_are_requeued(store, enter) -> None:
    name = enter()
    with Study.opened(store, name) as study:
        left = begin(study)
        study.ask(Budget())
    with Study.opened(store, name) as again:
        assert [t.state for t in again.trials.values()] == ["waiting", "waiting"]
        assert again.next_waiting() == left.waiting()
    with Study.opened(store, name) as again:  # which also counts the attempt
        assert again.next_waiting() == left.waiting()
        assert again.next_waiting(numbers=[1]) == again.trials[1]
        assert again.next_waiting(numbers=[]) is None
        assert [t["state"] for t in Ledger(store.database).trials(name)] == ["waiting"] * 2


def test_plan_result_versions_and_state_are_stored(store, enter) -> None:
    name = enter()
    with Study.opened(store, name) as study:
        study.set_plan(changed(study.plan, ensemble=EnsembleRule("greedy", 4), flow_run_id="one"))
        model = ModelFacts(members=(WeightedTrial(0, 1.0),), test_loss=1.5)
        study.record(replace(study.facts, model=model))
        study.record(replace(study.facts, no_model="no reason"))
        study.set_state("running")
    with Study.opened(store, name) as again:  # its process was killed
        assert (again.former_state, again.former_flow_run) == ("interrupted", "one")
        assert again.plan.options.ensemble == EnsembleRule("greedy", 4)
        assert (again.facts.model, again.facts.no_model) == (model, "no reason")
        versions = again.facts.versions
    assert versions["scikit-learn"] == sklearn.__version__
    assert {"prefect-tune", "python", "numpy", "prefect", "dask", "ConfigSpace"} <= set(versions)


def test_study_is_opened_by_one_process_at_a_time(store, enter) -> None:
    name = enter()
    with (
        Study.opened(store, name),
        pytest.raises(BadInput, match=gethostname()),
        Study.opened(store, name),
    ):
        pass
    with Study.opened(store, name):
        pass


def test_study_opens_only_with_the_original_space(store, enter, imported) -> None:
    with pytest.raises(BadInput, match="'nothing'"):
        Study(store, "nothing")
    _, plan = imported
    name = enter(problem=replace(plan.problem, space_digest="0" * 64))
    with pytest.raises(BadInput, match="space 'small'"):
        Study(store, name)


def test_session_counts_time_and_pins_steps_of_the_incumbent(store, enter, monkeypatch) -> None:
    monkeypatch.setattr(lease_module, "_BEAT_SECONDS", 0.02)
    name = enter()
    step = StepCost("fit model", 0, 1.0, 0.0, hit=False, key="a" * 64)
    with Study.opened(store, name) as study:
        assert study.seconds() == study.seconds() == 0.0
        with study.clock.running(), study.searching():
            tell(study, replace(evaluation(1.0), steps=(step,)))
            assert step.key in pinned(store)
            wait_for(lambda: Ledger(store.database).study(name).seconds > 0.02)  # if killed now
            spent = study.seconds()
    assert step.key not in pinned(store)
    assert not store.leases.holder(study_lease(name))
    with Study.opened(store, name) as again:
        assert again.seconds() >= spent > 0.02
        with pytest.raises(ZeroDivisionError), again.clock.running(), again.searching():
            wait_for(lambda: 1 / 0)
    with Study.opened(store, name) as again:
        assert again.seconds() > spent  # a session that fails counts too


def test_ask_uses_a_single_thread_and_restores_the_thread_limit(store, enter, monkeypatch) -> None:
    seen = []

    def threads() -> set[int]:
        return {library["num_threads"] for library in threadpool_info()}

    with Study.opened(store, enter()) as study, threadpool_limits(2):
        propose = study.optimizer._propose

        def counted(*of: Any) -> Any:
            seen.append(threads())
            return propose(*of)

        monkeypatch.setattr(study.optimizer, "_propose", counted)
        study.ask(Budget())
        assert threads() == {2}
    assert seen == [{1}]
