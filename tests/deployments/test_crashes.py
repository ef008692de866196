"""Kill -9 at any instant: of a worker, of the flow, of the server's owner."""

import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
from inputs import QUICK_OPTIONS, table, write_table
from prefect_api import flow_runs, states, task_runs
from processes import (
    is_alive,
    kill,
    run,
    run_json,
    runs_trial,
    server_of,
    started,
    stop_server,
    wait_for,
    workers_of,
)

from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress


def ledger_of(home: Path) -> Ledger:
    return Ledger(ArtifactStore(StoreAddress(str(home / "store"))).database)


def trials_of(home: Path, study: str) -> list[dict[str, Any]]:
    return [dict(t) for t in ledger_of(home).trials(study)] if (home / "store").exists() else []


def slow_table(folder: Path) -> Path:
    """One that a trial needs half a second or more for."""
    path = folder / "slow.parquet"
    table(3_000).to_parquet(path, index=False)
    return path


def busy_worker(process: subprocess.Popen[str]) -> psutil.Process | None:
    """A worker that is in the middle of a trial."""
    return next((w for w in workers_of(process) if runs_trial(w.pid)), None)


def n_told(home: Path, study: str) -> int:
    return sum(t["state"] in ("complete", "failed") for t in trials_of(home, study))


def test_a_killed_worker_costs_one_start_of_one_trial(tmp_path) -> None:
    home = tmp_path / "home"
    options = (*QUICK_OPTIONS, "--target", "target", "--study", "s", "--trials", 6, "--workers", 2)
    with started("run", slow_table(tmp_path), *options, "--keep-server", home=home) as process:
        wait_for(lambda: n_told(home, "s") >= 1)
        url = server_of(home)["url"]
        kill(wait_for(lambda: busy_worker(process)).pid)
        _, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    trials = trials_of(home, "s")
    assert {t["state"] for t in trials} == {"complete"}
    assert sorted(t["attempts"] for t in trials) == [1, 1, 1, 1, 1, 2]
    assert "the trial is started again" in said

    by_state = states(task_runs(flow_runs(url)[0].id, url))
    stop_server(home)
    assert by_state["Crashed"] >= 1
    assert not {"Running", "Pending"} & set(by_state)


def test_a_killed_flow_goes_on_as_if_it_had_never_stopped(server, tmp_path) -> None:
    home, unbroken = tmp_path / "home", tmp_path / "unbroken"
    data = slow_table(tmp_path)
    options = (*QUICK_OPTIONS, "--target", "target", "--study", "s", "--trials", 6)
    command = ("run", data, *options, "--workers", 1)
    with started(*command, home=home) as process:
        wait_for(lambda: n_told(home, "s") >= 2)
        workers = workers_of(process)
        kill(process.pid)
        process.wait()
    wait_for(lambda: not any(w.is_running() for w in workers))
    finished = [t for t in trials_of(home, "s") if t["state"] == "complete"]

    with started(*command, "--keep-server", home=home) as process:
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "continues study s" in said
    trials = trials_of(home, "s")
    assert [t["number"] for t in trials] == list(range(6))
    assert {t["state"] for t in trials} == {"complete"}
    assert trials[: len(finished)] == finished  # not run again

    whole = run(*command, home=unbroken, server=server)
    assert whole.returncode == 0, whole.stderr
    assert [t["query"] for t in trials] == [t["query"] for t in trials_of(unbroken, "s")]
    assert [t["evaluation"]["loss"] for t in trials] == [
        t["evaluation"]["loss"] for t in trials_of(unbroken, "s")
    ]

    url = server_of(home)["url"]
    by_created = sorted(flow_runs(url), key=lambda r: r.created)
    assert [r.state_name for r in by_created] == ["Crashed", "Completed"]
    for flow_run in by_created:
        assert not {"Running", "Pending"} & set(states(task_runs(flow_run.id, url)))
    stop_server(home)
    assert server_of(home) is None


def test_a_killed_server_ends_no_study(tmp_path) -> None:
    home = tmp_path / "home"
    options = (*QUICK_OPTIONS, "--target", "target", "--study", "s", "--trials", 4, "--workers", 2)
    with started("run", slow_table(tmp_path), *options, home=home) as process:
        wait_for(lambda: n_told(home, "s") >= 1)
        former = server_of(home)
        kill(former["pid"])
        again = wait_for(lambda: (s := server_of(home)) and s["pid"] != former["pid"] and s)
        assert again["url"] == former["url"]
        said_to_users, said = process.communicate(timeout=120)
    assert {t["state"] for t in trials_of(home, "s")} == {"complete"}
    assert ledger_of(home).study("s").state == "complete"
    assert process.returncode == 0, said
    assert "best: trial" in said_to_users
    assert "Traceback" not in said


def test_two_runs_of_one_home_at_once_share_one_server(tmp_path) -> None:
    home = tmp_path / "home"
    data = write_table(tmp_path)
    command = ("run", data, *QUICK_OPTIONS, "--target", "target", "--trials", 3, "--workers", 1)
    with (
        started(*command, "--study", "one", home=home) as one,
        started(*command, "--study", "two", "--seed", 1, home=home) as two,
    ):
        server = wait_for(lambda: server_of(home))
        outputs = [p.communicate(timeout=150) for p in (one, two)]
    assert [one.returncode, two.returncode] == [0, 0], outputs
    assert all(server["url"].removesuffix("/api") in said for _, said in outputs)
    assert server_of(home) is None
    assert not is_alive(server["pid"])
    for study in ("one", "two"):
        assert [t["state"] for t in trials_of(home, study)] == ["complete"] * 3


def test_an_interrupted_run_leaves_its_trials_waiting_and_goes_on(server, tmp_path) -> None:
    home = tmp_path / "home"
    options = (*QUICK_OPTIONS, "--target", "target", "--study", "s", "--trials", 5)
    command = ("run", slow_table(tmp_path), *options)
    with started(*command, home=home, server=server) as process:
        wait_for(lambda: n_told(home, "s") >= 1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command with --study s continues it" in said
    assert "Traceback" not in said
    assert server_of(home) is None
    states_left = {t["state"] for t in trials_of(home, "s")}
    assert "running" not in states_left
    assert ledger_of(home).study("s").state == "interrupted"
    summary = run_json(*command, home=home, server=server)
    assert (summary["state"], summary["n_trials"]) == ("complete", 5)
