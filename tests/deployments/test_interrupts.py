"""Signals, kills and closed terminals end a command and leave a study that can be resumed."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest
from inputs import write_table
from prefect_api import flow_runs, states, task_runs
from processes import (
    kill,
    run,
    run_python,
    sandboxes_of,
    server_of,
    started,
    stop_server,
    wait_for,
)
from studies import trials_in
from user_spaces import SLEEPING

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.ledger import Ledger

pytestmark = pytest.mark.slow


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["Scene"]:
    with TemporaryDirectory() as temporary:  # names of sockets in there must not be long
        monkeypatch.setenv("TMPDIR", temporary)
        monkeypatch.setattr("tempfile.tempdir", None)
        yield Scene(tmp_path, Path(temporary))


class Scene:
    """A home, a folder for temporary files, and data with slow trials."""

    def __init__(self, folder: Path, temporary: Path) -> None:
        self.home, self.temporary = folder / "home", temporary
        self.data, self.space = write_table(folder), f"{folder}/slow.py:space"
        (folder / "slow.py").write_text(SLEEPING.format(seconds=0.3))

    def command(self, n_trials: int = 400) -> tuple[object, ...]:
        return (
            "run", self.data, "--target", "target", "--method", "random", "--trials", n_trials,
            "--workers", 2, "--space", self.space, "--study", "s",
        )  # fmt: skip

    def trials(self) -> list[dict[str, Any]]:
        has_store = (self.home / "store" / "index.sqlite").exists()
        return trials_in(self.home / "store", "s") if has_store else []

    def n_told(self) -> int:
        return sum(t["state"] in ("complete", "failed") for t in self.trials())

    def family(self, pid: int) -> list[psutil.Process]:
        """Return a command and all its processes after the first trial was told."""
        wait_for(self.n_told)
        whole = psutil.Process(pid).children(recursive=True)
        assert server_of(self.home)["pid"] in {p.pid for p in whole}
        return [psutil.Process(pid), *whole]

    def assert_nothing_left(self, family: list[psutil.Process]) -> None:
        _, alive = psutil.wait_procs(family, timeout=120)
        assert [p.cmdline() for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
        assert server_of(self.home) is None
        left = {p.name for p in self.temporary.rglob("*")}
        of_prefect = "runner_storage"  # an empty folder
        assert left <= {f"prefect-tune-{os.getuid()}", "lock", of_prefect}

    def assert_can_go_on(self) -> None:
        store = ArtifactStore(StoreAddress(str(self.home / "store")))
        assert Ledger(store.database).study("s").state == "interrupted"
        store.close()
        assert "running" not in {t["state"] for t in self.trials()}


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        *(pytest.param(n, marks=pytest.mark.full) for n in (signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_signal_ends_the_study_and_all_processes(scene, number) -> None:
    """A signal from a terminal reaches all processes of the terminal session at once."""
    with started(*scene.command(), home=scene.home) as process:
        family, session = scene.family(process.pid), os.getsid(process.pid)
        for member in family:
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getsid(member.pid) == session:
                    member.send_signal(number)
        _, said = process.communicate(timeout=240)
    assert process.returncode == 128 + number
    assert "--study s" in said
    assert said.endswith("interrupted\n")
    assert "Traceback" not in said
    scene.assert_nothing_left(family)
    scene.assert_can_go_on()


def test_killed_command_leaves_no_process_and_the_next_command_resumes(scene) -> None:
    with started(*scene.command(), home=scene.home) as process:
        family = scene.family(process.pid)
        kill(process.pid)
        process.wait()
    _, alive = psutil.wait_procs(family, timeout=120)
    assert alive == []
    assert len(list(scene.temporary.rglob("*"))) > 2
    finished = [t for t in scene.trials() if t["state"] == "complete"]
    n_trials = len(finished) + 3
    done = run(*scene.command(n_trials), "--keep-server", home=scene.home)
    assert done.returncode == 0, done.stderr
    trials = scene.trials()
    assert [(t["number"], t["state"]) for t in trials] == [(n, "complete") for n in range(n_trials)]
    assert all(trial in trials for trial in finished)  # not run again
    url = server_of(scene.home)["url"]
    runs = sorted(flow_runs(url), key=lambda run: run.created)
    assert [run.state_name for run in runs] == ["Crashed", "Completed"]
    for flow_run in runs:
        assert not {"Running", "Pending"} & set(states(task_runs(flow_run.id, url)))
    stop_server(scene.home)
    scene.assert_nothing_left([])


@pytest.mark.full
def test_second_signal_ends_the_command_at_once(scene) -> None:
    with started(*scene.command(), home=scene.home) as process:
        family = scene.family(process.pid)
        for sandbox in sandboxes_of(process.pid):
            sandbox.suspend()
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: "interrupted" in process.stderr.readline())
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
    assert process.returncode in (143, -signal.SIGTERM)  # the latter on its way out
    _, alive = psutil.wait_procs(family, timeout=120)
    assert alive == []


@pytest.mark.full
def test_signal_during_garbage_collection_is_not_lost() -> None:
    program = """
import os, signal, time
from prefect_tune.flows.running.interrupts import EndedBySignal, interrupts_taken
class LetGo:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
try:
    with interrupts_taken(lambda: print("said", flush=True)):
        os.kill(os.getpid(), signal.SIGHUP)
        print("goes on")
        LetGo()
        time.sleep(250)
except EndedBySignal as ended:
    print("ended", ended.exit_code, ended)
"""
    assert run_python(program).splitlines() == ["goes on", "said", "ended 143 SIGTERM"]
