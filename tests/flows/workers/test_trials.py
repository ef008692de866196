"""Trials of a study on slots in the flow's process: endings, repetitions, and cancellation."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from pools import Gate, collected, in_flow, start
from prefect_api import states, task_runs
from processes import is_alive, kill, wait_for
from studies import context_of, draw

from prefect_tune.flows.workers import dask_trials
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.threads import fit_threads

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


@pytest.fixture
def slow(tmp_path: Path, gate: Gate) -> StudyContext:
    """A study with models that wait for the gate."""
    return gate.before(context_of(tmp_path))


def states_of_trials(flow_run_id: UUID) -> dict[str, str | None]:
    runs = task_runs(flow_run_id)
    return {run.name: run.state_name for run in runs if run.name.startswith("trial")}


def test_running_trial_reports_the_current_step_and_returns_an_outcome(slow, gate) -> None:
    def body(trials: DaskTrials) -> None:
        start(trials, slow, 7, report="trial")
        (before,) = trials.running_trials
        assert (before.number, before.step) == (7, "")
        gate.arrived()
        at = wait_for(lambda: [t for t in trials.running_trials if t.step == "fit model"])[0]
        assert at.fold == 0
        assert 0 <= at.seconds < at.limit_seconds == slow.trial_seconds
        start(trials, slow, 1, report="trial")
        assert (trials.n_slots, trials.n_running, trials.has_room()) == (2, 2, False)
        gate.open()
        ended = collected(trials, 2)
        assert {e.trial.number for e in ended} == {7, 1}
        assert all(e.outcome and e.outcome.evaluation for e in ended)
        assert (trials.n_running, trials.n_task_runs) == (0, 2)
        assert trials.collect(0.01) == []
        start(trials, slow, 2)
        collected(trials, 1)
        assert trials.n_task_runs == 2 + 4  # it and its three steps

    _, flow_run_id = in_flow(slow, body, n_workers=2)
    assert wait_for(lambda: len(task_runs(flow_run_id)) == 6)


class GivenTasks(list[Any]):
    """Submitted tasks that never end."""

    def submit(self, subject: Any, _: Any, parameters: Mapping[str, Any]) -> None:
        assert parameters["context"].most_threads == subject.n_threads
        self.append(SimpleNamespace(subject=subject))


def test_lone_trial_on_a_large_table_gets_the_threads_of_all_slots(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(dask_trials, "RunningTasks", lambda _: tasks)
    context, pool, tasks = context_of(tmp_path), SimpleNamespace(n_slots=2), GivenTasks()
    trials = DaskTrials(cast("Any", pool), context, cast("Any", None), cores=2)

    def threads(*n_following: int) -> list[int]:
        tasks.clear()
        for n in n_following:
            trials.submit(Trial(n, draw(context, n)), "trial", n_following=n)
        return [task.subject.n_threads for task in tasks]

    assert threads(0, 0) == [2, 1]  # one after the other
    assert threads(1, 0) == [1, 1]  # at once
    assert fit_threads(300_000 * 20, *threads(0)) == 2


def test_canceled_trials_leave_no_processes_or_open_task_runs(slow, gate) -> None:
    def body(trials: DaskTrials) -> list[int]:
        start(trials, slow, 0, 1)
        cut = gate.arrived(2)
        assert {trial.number for trial in trials.cut()} == {0, 1}
        assert (trials.n_running, trials.running_trials, trials.cut()) == (0, (), [])
        wait_for(lambda: not any(map(is_alive, cut)))
        start(trials, slow, 2, 3)  # in their slots
        return gate.arrived(2, without=cut)

    pids, flow_run_id = in_flow(slow, body, n_workers=2)
    assert not any(map(is_alive, pids))
    ended = {f"trial {number}": "Cancelled" for number in range(4)}
    wait_for(lambda: states_of_trials(flow_run_id) == ended)

    def states_of_models() -> Counter[str]:
        runs = task_runs(flow_run_id)
        return states([run for run in runs if run.name.startswith("fit model")])

    wait_for(lambda: states_of_models() == {"Cancelled": 4})


def test_trial_is_repeated_after_a_killed_sandbox_and_fails_after_the_second(slow, gate) -> None:
    def body(trials: DaskTrials) -> None:
        start(trials, slow, 0, 1)
        first = gate.arrived(2)
        for pid in first:
            kill(pid)
        again = gate.arrived(2, without=first, ended=lambda: trials.collect(0.01))[0]
        kill(again)
        wait_for(lambda: not is_alive(again))
        gate.open()
        ended = collected(trials, 2)
        (failed,) = [e.outcome for e in ended if e.outcome and e.outcome.failure]
        assert sum(1 for e in ended if e.outcome and e.outcome.evaluation) == 1
        assert (failed.failure.kind, failed.failure.step) == ("crashed", "fit model")
        assert failed.failure.cost_seconds > 0

    _, flow_run_id = in_flow(slow, body, n_workers=2)
    ended = ["Completed", "Failed"]
    wait_for(lambda: sorted(states_of_trials(flow_run_id).values()) == ended)
