"""Cancelling, suspending and pausing runs of deployments, as the UI and the API do it."""

import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psutil
import pytest
from inputs import write_table
from prefect.client.schemas.objects import State, StateDetails, StateType
from prefect.states import Cancelling, Paused
from prefect_api import client_of, flow_runs, states, task_runs
from processes import run_json, wait_for
from processes import started as command_started
from serving import Served
from user_spaces import SLEEPING

pytestmark = pytest.mark.slow

OPEN = {"Running", "Pending", "Scheduled"}


@pytest.fixture(scope="module")
def served(server, tmp_path_factory) -> Iterator[Served]:
    with Served.at(server, tmp_path_factory.mktemp("served")) as served:
        (served.home / "slow.py").write_text(SLEEPING.format(seconds=0.6))
        write_table(served.home)
        yield served


def options(served: Served, study: str, trials: int = 12, **more: Any) -> dict[str, Any]:
    where = {"data": f"{served.home}/table.csv", "space": f"{served.home}/slow.py:space"}
    search = {"method": "random", "trials": trials, "workers": 2, "budget": "10m"}
    others = {"target": "target", "race": False, "no_cache": True, "study": study}
    return {**where, **search, **others, **more}


def started(served: Served, study: str, **more: Any) -> UUID:
    """A run of a study whose first trial has ended."""
    run = served.start("tune/healthcare", **options(served, study, **more))
    wait_for(lambda: served.n_told(study) >= 1)
    return run


def suspended() -> State[Any]:
    """The state that the UI sets."""
    timeout = datetime.now(UTC) + timedelta(minutes=5)
    details = StateDetails(pause_timeout=timeout, pause_reschedule=True)
    return State(type=StateType.PAUSED, name="Suspended", state_details=details)


def state_name(served: Served, run: UUID) -> str:
    return served.run(run).state_name or ""


def configurations(served: Served, study: str) -> list[Any]:
    trials = sorted(served.trials(study), key=lambda trial: trial["number"])
    return [trial["query"]["configuration"] for trial in trials]


def assert_ended(served: Served, study: str) -> None:
    """The study was cut and can be resumed, and no process is left."""
    wait_for(lambda: served.state(study) == "interrupted")
    wait_for(lambda: served.family() == [])
    assert served.n_running(study) == 0


def test_a_suspended_run_ends_its_trials_and_goes_on_when_resumed(served) -> None:
    run = started(served, "suspended")
    served.set_state(run, suspended())
    assert_ended(served, "suspended")
    assert state_name(served, run) == "Suspended"
    n_told = served.n_told("suspended")
    assert len(served.trials("suspended")) == n_told < 12  # running trials were told, none was cut
    assert not OPEN & set(states(task_runs(run, served.server)))
    served.resume(run)
    wait_for(lambda: state_name(served, run) == "Completed")
    assert served.n_told("suspended") == 12


@pytest.mark.full
def test_a_run_that_is_resumed_at_once_waits_for_its_former_process(served) -> None:
    run = started(served, "twice")
    served.set_state(run, suspended())
    served.resume(run)
    wait_for(lambda: state_name(served, run) in ("Completed", "Failed", "Crashed"))
    assert state_name(served, run) == "Completed"
    assert served.n_told("twice") == 12


@pytest.mark.full
def test_a_paused_run_ends_too(served) -> None:
    run = started(served, "paused")
    served.set_state(run, Paused(timeout_seconds=600))
    assert_ended(served, "paused")
    assert state_name(served, run) == "Paused"
    assert len(served.trials("paused")) == served.n_told("paused") < 12


def test_a_cancelled_run_leaves_a_study_that_is_resumed_as_it_was(served) -> None:
    run = started(served, "cancelled")
    served.set_state(run, Cancelling())
    wait_for(lambda: state_name(served, run) == "Cancelled")
    assert_ended(served, "cancelled")
    assert not OPEN & set(states(task_runs(run, served.server)))
    asked = configurations(served, "cancelled")
    assert served.n_told("cancelled") < len(asked) < 12  # trials that were cut wait
    again = served.start("tune/healthcare", **options(served, "cancelled"))
    wait_for(lambda: state_name(served, again) == "Completed")
    assert served.n_told("cancelled") == 12
    assert configurations(served, "cancelled")[: len(asked)] == asked


@pytest.mark.full
def test_a_command_whose_run_is_cancelled_in_the_ui_ends(server, tmp_path) -> None:
    space = tmp_path / "slow.py"
    space.write_text(SLEEPING.format(seconds=0.6))
    words = ("run", write_table(tmp_path), "--target", "target", "--space", f"{space}:space")
    words += ("--method", "random", "--trials", 40, "--workers", 2, "--study", "by-hand")
    with command_started(*words, home=tmp_path, server=server) as process:
        (run,) = wait_for(
            lambda: [r for r in flow_runs(server) if "study:by-hand" in (r.tags or [])]
        )
        with client_of(server) as client:
            client.set_flow_run_state(run.id, Cancelling(), force=True)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "--study by-hand" in said
    with client_of(server) as client:
        assert client.read_flow_run(run.id).state_name == "Cancelled"
    assert run_json("show", "by-hand", home=tmp_path)["state"] == "interrupted"


@pytest.mark.full
def test_one_ctrl_c_of_serve_ends_the_study_and_all_processes(served) -> None:
    # The last test of the module: two served homes on one server would take each other's runs.
    run = started(served, "s")
    family = served.family()
    served.process.send_signal(signal.SIGINT)
    served.process.wait(timeout=120)
    assert served.process.returncode == 130
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    assert served.state("s") == "interrupted"
    assert served.n_running("s") == 0
    assert served.run(run).state.is_final()
    assert not OPEN & set(states(task_runs(run, served.server)))
