"""Trials of a study on slots in the flow's process: how they end, run again, and are cut."""

from pathlib import Path
from time import monotonic
from uuid import UUID

import pytest
from pools import Gate, collected, in_flow, start
from prefect_api import states, task_runs
from processes import is_alive, kill, wait_for
from studies import context_of

from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.tasks.problem import StudyContext

pytestmark = pytest.mark.usefixtures("server")
TWO = {"n_workers": 2}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> StudyContext:
    return context_of(tmp_path_factory.mktemp("quick"))


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


@pytest.fixture
def slow(quick: StudyContext, gate: Gate) -> StudyContext:
    """The study with models that wait for the gate."""
    return gate.before(quick)


def states_of_trials(flow_run_id: UUID) -> dict[str, str | None]:
    runs = task_runs(flow_run_id)
    return {run.name: run.state_name for run in runs if run.name.startswith("trial")}


def test_trials_come_back_with_their_outcomes_and_are_counted(quick) -> None:
    def body(trials: DaskTrials) -> None:
        assert trials.n_slots == 2
        start(trials, quick, 0, 1, report="trial")
        assert (trials.n_running, trials.has_room()) == (2, False)
        ended = collected(trials, 2)
        assert {e.trial.number for e in ended} == {0, 1}
        assert all(e.outcome and e.outcome.evaluation for e in ended)
        assert (trials.n_running, trials.n_task_runs) == (0, 2)
        assert trials.collect(0.01) == []
        start(trials, quick, 2)
        collected(trials, 1)
        assert trials.n_task_runs == 2 + 7  # it and its six steps

    _, flow_run_id = in_flow(quick, body, **TWO)
    assert wait_for(lambda: len(task_runs(flow_run_id)) == 9, 20)


def test_where_a_trial_stands_is_known_while_it_runs(slow) -> None:
    def body(trials: DaskTrials) -> None:
        start(trials, slow, 7)
        (before,) = trials.running_trials
        assert (before.number, before.step) == (7, "")
        at = wait_for(lambda: trials.running_trials[0].step and trials.running_trials[0])
        assert at.step in [step.name for step in slow.problem.find_space().steps]
        assert at.fold in (0, 1, 2)
        assert 0 <= at.seconds < at.limit_seconds == slow.trial_seconds

    in_flow(slow, body, **TWO)


def test_trials_that_are_cut_end_as_cancelled_and_leave_their_slots_at_once(slow, gate) -> None:
    def body(trials: DaskTrials) -> None:
        start(trials, slow, 0, 1)
        cut = gate.arrived(2)
        since = monotonic()
        assert {trial.number for trial in trials.cut()} == {0, 1}
        assert (trials.n_running, trials.running_trials, trials.cut()) == (0, (), [])
        wait_for(lambda: not any(map(is_alive, cut)), 20)
        print("cut took", monotonic() - since)
        start(trials, slow, 2, 3)
        gate.arrived(2, without=cut)
        gate.open()
        assert {ended.trial.number for ended in collected(trials, 2)} == {2, 3}

    _, flow_run_id = in_flow(slow, body, **TWO)
    ended = {"trial 0": "Cancelled", "trial 1": "Cancelled", "trial 2": "Completed"}
    wait_for(lambda: ended.items() <= states_of_trials(flow_run_id).items(), 20)
    of_models = [r for r in task_runs(flow_run_id) if r.name.startswith("fit model")]
    assert states(of_models) == {"Cancelled": 2, "Completed": 2}


def test_trials_that_run_at_the_end_of_a_flow_are_cancelled_and_leave_nothing(slow, gate) -> None:
    def body(trials: DaskTrials) -> list[int]:
        start(trials, slow, 0, 1)
        return gate.arrived(2)

    pids, flow_run_id = in_flow(slow, body, **TWO)
    assert not any(map(is_alive, pids))
    ended = {"trial 0": "Cancelled", "trial 1": "Cancelled"}
    wait_for(lambda: states_of_trials(flow_run_id) == ended, 20)


def test_a_trial_whose_sandbox_is_killed_runs_again_and_twice_fails(slow, gate) -> None:
    def body(trials: DaskTrials) -> None:
        start(trials, slow, 0, 1)
        first = gate.arrived(2)
        kill(first[0])
        kill(first[1])
        second = gate.arrived(2, without=first)
        kill(second[0])
        wait_for(lambda: not is_alive(second[0]), 20)
        gate.open()
        ended = collected(trials, 2)
        (failed,) = [e.outcome for e in ended if e.outcome and e.outcome.failure]
        assert sum(1 for e in ended if e.outcome and e.outcome.evaluation) == 1
        assert (failed.failure.kind, failed.failure.step) == ("crashed", "fit model")
        assert failed.failure.cost_seconds > 0

    _, flow_run_id = in_flow(slow, body, **TWO)
    wait_for(lambda: sorted(states_of_trials(flow_run_id).values()) == ["Completed", "Failed"], 20)
