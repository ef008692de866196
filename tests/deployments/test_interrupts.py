"""Signals, kills and closed terminals end a command and leave a study that can be resumed."""

import os
import pty
import signal
import subprocess
import sys
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
    COMMAND,
    environment,
    kill,
    run,
    run_json,
    run_python,
    sandboxes_of,
    server_of,
    started,
    stop_server,
    wait_for,
)
from user_spaces import SLEEPING

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.ledger import Ledger

pytestmark = pytest.mark.slow

OPTIONS = ("--target", "target", "--method", "random", "--trials", 40, "--workers", 2)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["Scene"]:
    with TemporaryDirectory() as temporary:  # names of sockets in there must not be long
        monkeypatch.setenv("TMPDIR", temporary)
        monkeypatch.setattr("tempfile.tempdir", None)
        yield Scene(tmp_path, Path(temporary))


def ledger_of(home: Path) -> Ledger:
    return Ledger(ArtifactStore(StoreAddress(str(home / "store"))).database)


class Scene:
    """A home, a folder for temporary files, and data that a trial needs a while for."""

    def __init__(self, folder: Path, temporary: Path) -> None:
        self.home, self.temporary = folder / "home", temporary
        self.data, self.space = write_table(folder), f"{folder}/slow.py:space"
        (folder / "slow.py").write_text(SLEEPING.format(seconds=0.3))

    def command(self, name: str = "run", study: str = "s") -> tuple[object, ...]:
        return (name, self.data, *OPTIONS, "--space", self.space, "--study", study)

    def ledger(self) -> Ledger:
        return ledger_of(self.home)

    def trials(self, study: str = "s") -> list[dict[str, Any]]:
        if not (self.home / "store" / "index.sqlite").exists():
            return []
        return [dict(trial) for trial in self.ledger().trials(study)]

    def n_told(self, study: str = "s") -> int:
        return sum(t["state"] in ("complete", "failed") for t in self.trials(study))

    def family(self, pid: int) -> list[psutil.Process]:
        """A command and all that was started for it."""
        server = wait_for(lambda: server_of(self.home))
        whole = psutil.Process(pid).children(recursive=True)
        assert server["pid"] in {p.pid for p in whole}
        return [psutil.Process(pid), *whole]

    def assert_nothing_left(self, family: list[psutil.Process], seconds: float = 5.0) -> None:
        _, alive = psutil.wait_procs(family, timeout=seconds)
        assert [p.cmdline() for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
        assert server_of(self.home) is None
        left = {p.name for p in self.temporary.rglob("*")}
        of_prefect = "runner_storage"  # an empty folder
        assert left <= {f"prefect-tune-{os.getuid()}", "lock", of_prefect}

    def assert_can_go_on(self, study: str = "s") -> None:
        ledger = self.ledger()
        assert ledger.study(study).state == "interrupted"
        assert "running" not in {t["state"] for t in ledger.trials(study)}


def test_a_signal_ends_the_study_and_all_that_was_started_for_it(scene) -> None:
    with started(*scene.command(), home=scene.home) as process:
        wait_for(lambda: scene.n_told() >= 1)
        family = scene.family(process.pid)
        process.terminate()
        _, said = process.communicate(timeout=90)
    assert process.returncode == 143
    assert "--study s" in said
    assert said.endswith("interrupted\n")
    assert "Traceback" not in said
    scene.assert_nothing_left(family)
    scene.assert_can_go_on()
    summary = run_json(*scene.command()[:-2], "--study", "s", "--trials", 3, home=scene.home)
    assert summary["state"] == "complete"


@pytest.mark.full
@pytest.mark.parametrize("how", ["closed", "ctrl-c"])
def test_a_terminal_ends_it(scene, how) -> None:
    """A real terminal, whose signals reach all processes of the command at once."""
    pid, terminal = pty.fork()
    if pid == 0:
        command = [*COMMAND, *map(str, scene.command())]
        os.execve(sys.executable, command, environment(scene.home))  # noqa: S606 - our own
    said = b""

    def read() -> None:
        nonlocal said
        os.set_blocking(terminal, False)
        with suppress(OSError):  # nothing now
            said += os.read(terminal, 100_000)

    def is_told() -> bool:
        read()
        return scene.n_told() >= 1

    wait_for(is_told)
    family = scene.family(pid)
    if how == "closed":
        os.close(terminal)
    else:
        os.write(terminal, b"\x03")
    status: list[int] = []

    def has_ended() -> bool:
        if how != "closed":
            read()
        done, code = os.waitpid(pid, os.WNOHANG)
        status.append(code)
        return done == pid

    wait_for(has_ended, 90)
    assert os.waitstatus_to_exitcode(status[-1]) == (129 if how == "closed" else 130)
    if how != "closed":
        read()
        os.close(terminal)
        assert b"--study s" in said
    assert b"Traceback" not in said
    scene.assert_nothing_left(family)
    scene.assert_can_go_on()


@pytest.mark.full
def test_a_second_signal_ends_it_at_once_and_the_next_command_resumes(scene) -> None:
    with started(*scene.command(), home=scene.home) as process:
        wait_for(lambda: scene.n_told() >= 1)
        family = scene.family(process.pid)
        for sandbox in sandboxes_of(process.pid):
            sandbox.suspend()
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: "interrupted" in process.stderr.readline())
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
    assert process.returncode in (143, -signal.SIGTERM)  # the latter on its way out
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []
    summary = run_json(*scene.command()[:-2], "--study", "s", "--trials", 3, home=scene.home)
    assert summary["state"] == "complete"
    scene.assert_nothing_left([])


@pytest.mark.full
def test_after_a_kill_the_server_ends_by_itself_and_the_next_command_sweeps(scene) -> None:
    with started(*scene.command(), home=scene.home) as process:
        wait_for(lambda: scene.n_told() >= 1)
        server = psutil.Process(server_of(scene.home)["pid"])
        kill(process.pid)
        process.wait()
    psutil.wait_procs([server], timeout=10)
    assert not server.is_running()
    assert len(list(scene.temporary.rglob("*"))) > 2
    summary = run_json(*scene.command()[:-2], "--study", "s", "--trials", 3, home=scene.home)
    assert summary["state"] == "complete"
    scene.assert_nothing_left([])


@pytest.mark.full
def test_a_server_that_is_to_be_kept_survives_signals_and_kills(scene) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with started(*scene.command(), "--keep-server", home=scene.home) as process:
            wait_for(lambda: sandboxes_of(process.pid))
            server = server_of(scene.home)
            process.send_signal(number)
            process.wait(90)
        assert server_of(scene.home) == server
        assert psutil.Process(server["pid"]).is_running()
    stop_server(scene.home)
    assert server_of(scene.home) is None


def compared(scene: Scene) -> tuple[object, ...]:
    options = ("--methods", "random,tpe", "--space", scene.space, "--repeats", 1, "--workers", 2)
    command = ("compare", scene.data, "--target", "target", *options, "--trials", 40)
    return (*command, "--name", "c")


def retried(scene: Scene) -> tuple[object, ...]:
    options = ("--trials", 4, "--trial-timeout", "0.2s")
    done = run(*scene.command(), *options, home=scene.home)
    assert "failed" in done.stderr
    return ("retry", "s", "--trial-timeout", "5m")


@pytest.mark.full
@pytest.mark.parametrize("scenario", [compared, retried])
def test_comparisons_and_retries_end_like_runs(scene, scenario) -> None:
    with started(*scenario(scene), home=scene.home) as process:
        wait_for(lambda: sandboxes_of(process.pid))
        family = scene.family(process.pid)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=90)
    assert process.returncode == 143, said
    assert "Traceback" not in said
    assert "resumes it" in said
    scene.assert_nothing_left(family)


@pytest.mark.full
def test_a_signal_that_comes_while_an_object_is_let_go_is_not_lost() -> None:
    program = """
import os, signal, time
from prefect_tune.flows.running.interrupts import EndedBySignal, interrupts_taken
class LetGo:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
try:
    with interrupts_taken(lambda: print("said", flush=True)):
        LetGo()
        time.sleep(60)
except EndedBySignal as ended:
    print("ended", ended.exit_code, ended)
"""
    assert run_python(program).splitlines() == ["said", "ended 143 SIGTERM"]


@pytest.mark.full
def test_a_command_under_nohup_outlives_its_terminal() -> None:
    program = """
import os, signal
from prefect_tune.flows.running.interrupts import interrupts_taken
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with interrupts_taken(lambda: None):
    os.kill(os.getpid(), signal.SIGHUP)
    print("goes on")
"""
    assert run_python(program) == "goes on\n"


def test_a_killed_flow_resumes_as_if_it_had_never_stopped(scene, server, tmp_path) -> None:
    command = (*scene.command(), "--workers", 1, "--trials", 5)
    with started(*command, home=scene.home, server=server) as process:
        wait_for(lambda: scene.n_told() >= 2)
        sandboxes = sandboxes_of(process.pid)
        kill(process.pid)
        process.wait()
    wait_for(lambda: not any(s.is_running() for s in sandboxes))
    finished = [t for t in scene.trials() if t["state"] == "complete"]
    done = run(*command, home=scene.home, server=server)
    assert done.returncode == 0, done.stderr
    assert "study s" in done.stderr
    trials = scene.trials()
    assert [t["number"] for t in trials] == list(range(5))
    assert {t["state"] for t in trials} == {"complete"}
    assert trials[: len(finished)] == finished  # not run again

    unbroken = tmp_path / "unbroken"
    assert run(*command, home=unbroken, server=server).returncode == 0
    whole = ledger_of(unbroken).trials("s")
    for field in (lambda t: t["query"], lambda t: t["evaluation"]["loss"]):
        assert list(map(field, trials)) == list(map(field, whole))
    runs = sorted((r for r in flow_runs() if r.name == "s (random)"), key=lambda r: r.created)
    assert [r.state_name for r in runs[-3:]] == ["Crashed", "Completed", "Completed"]
    for flow_run in runs[-3:]:
        assert not {"Running", "Pending"} & set(states(task_runs(flow_run.id)))


def test_a_killed_server_ends_no_study(scene) -> None:
    with started(*scene.command(), "--trials", 6, home=scene.home) as process:
        wait_for(lambda: scene.n_told() >= 1)
        former = server_of(scene.home)
        kill(former["pid"])
        again = wait_for(lambda: (s := server_of(scene.home)) and s["pid"] != former["pid"] and s)
        assert again["url"] == former["url"]
        said_to_users, said = process.communicate(timeout=120)
    assert {t["state"] for t in scene.trials()} == {"complete"}
    assert scene.ledger().study("s").state == "complete"
    assert process.returncode == 0, said
    assert "best: trial" in said_to_users
    assert "Traceback" not in said
