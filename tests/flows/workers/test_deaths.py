"""Real workers whose fork server or whose flow is killed, or that cannot start."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import distributed
import psutil
import pytest
from external_clusters import external_cluster
from inputs import table
from processes import at_a_trial, is_alive, kill, wait_for
from user_spaces import PRELUDE

from prefect_tune.flows.tuning import tune
from prefect_tune.flows.workers import local_workers, worker_starts
from prefect_tune.flows.workers.fork_server import fork_server_pid, start_fork_server
from prefect_tune.flows.workers.local_workers import local_cluster, local_settings
from prefect_tune.flows.workers.nanny_reports import enforce_limits
from prefect_tune.flows.workers.roster import NoWorkers
from prefect_tune.flows.workers.scratch import scratch_folder
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress
from prefect_tune.tasks.problem import TrialLimits
from prefect_tune.tasks.worker import orphans as parent_death
from prefect_tune.tasks.worker.start_log import LOG_VARIABLE, log_path

SPACE = (
    PRELUDE
    + """
import tempfile, time

FOLDER = Path(tempfile.gettempdir())


class Slow(DecisionTreeClassifier):
    def fit(self, X, y):
        (FOLDER / f"companion-{os.getpid()}").touch()
        time.sleep(0.5)
        (FOLDER / f"companion-{os.getpid()}").unlink()
        return super().fit(X, y)


def has_companion():
    return any(
        Path(f"/proc/{path.name.split('-')[1]}").exists() for path in FOLDER.glob("companion-*")
    )


class Killing(DecisionTreeClassifier):
    def fit(self, X, y):
        until = time.monotonic() + 3
        while not has_companion() and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)


def of(*chosen):
    algorithms = [
        one(f"model {n}", model, max_depth=n, random_state=0) for n, model in enumerate(chosen, 1)
    ]
    return Space("models", (Step("fit model", tuple(algorithms)),))


slow = of(*[Slow] * 5)
killing = of(Slow, Slow, Killing, Slow, Slow)
"""
)


def hurry(monkeypatch) -> None:
    """Give up starts after seconds instead of most of a minute."""
    monkeypatch.setattr(worker_starts, "_MOST_SECONDS", 2.0)
    monkeypatch.setattr(worker_starts, "_START_SECONDS", 3.0)
    monkeypatch.setattr(worker_starts, "_FIRST_START_SECONDS", 3.0)


def study_of(folder: Path, space: str) -> dict[str, Any]:
    """Parameters of a study of five trials, two at a time."""
    (folder / "space.py").write_text(SPACE)
    table().drop(columns="colour").fillna(0).to_csv(folder / "table.csv", index=False)
    return {
        "data": str(folder / "table.csv"), "target": "target", "study": "s", "method": "random",
        "store": str(folder / "store"), "space": f"{folder}/space.py:{space}", "trials": 5,
        "workers": 2, "ensemble": "single", "folds": 2,
    }  # fmt: skip


def trials_of(parameters: dict[str, Any]) -> list[Any]:
    store = ArtifactStore(StoreAddress(parameters["store"]))
    try:
        return Ledger(store.database).trials("s")
    finally:
        store.close()


@contextmanager
def meanwhile(attack: Callable[[], bool]) -> Iterator[None]:
    """Attack every 50 ms while the body runs, until the attack says that it is over."""
    has_ended = Event()

    def attack_often() -> None:
        while not has_ended.wait(0.05) and not attack():
            pass

    thread = Thread(target=attack_often)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


def has_trial() -> bool:
    """Whether a worker of this process has noted where its trial is."""
    pid = fork_server_pid()
    with suppress(psutil.NoSuchProcess):
        return bool(pid and at_a_trial() & {p.pid for p in psutil.Process(pid).children()})
    return False


def are_of_our_fork_server(client: distributed.Client) -> bool:
    """Whether both workers are up, and tied to the fork server that runs now."""
    tied = client.run(lambda: (os.getppid(), *parent_death._FORK_SERVER), on_error="ignore")
    return list(tied.values()) == [(fork_server_pid(),) * 2] * 2


def log_of_new_fork_server() -> str | None:
    """Start the fork server and return the log that its environment names; None if it is dead."""
    start_fork_server()
    with suppress(psutil.Error):
        return psutil.Process(fork_server_pid()).environ().get(LOG_VARIABLE)
    return None


def kill_fork_server() -> int | None:
    """Kill the fork server, if it runs, and return its process."""
    pid = fork_server_pid()
    with suppress(ProcessLookupError):
        if pid is not None:
            kill(pid)
    return pid


@pytest.mark.skipif(sys.platform != "linux", reason="workers are spawned on other systems")
@pytest.mark.slow
@pytest.mark.full
@pytest.mark.usefixtures("server")
def test_a_study_whose_fork_server_is_killed_completes_all_trials(tmp_path) -> None:
    parameters = study_of(tmp_path, "slow")
    killed = []

    def attack() -> bool:
        if has_trial():
            killed.append(kill_fork_server())
        return bool(killed)

    with meanwhile(attack):
        assert tune(**parameters)["state"] == "complete"
    assert killed
    assert fork_server_pid() not in killed
    trials = trials_of(parameters)
    assert [t["state"] for t in trials] == ["complete"] * 5
    assert 1 <= sum(t["attempts"] - 1 for t in trials) <= 2


@pytest.mark.skipif(sys.platform != "linux", reason="workers are spawned on other systems")
@pytest.mark.slow
@pytest.mark.usefixtures("server")
@pytest.mark.full
def test_of_a_study_whose_code_kills_the_fork_server_only_that_trial_fails(tmp_path) -> None:
    parameters = study_of(tmp_path, "killing")
    assert tune(**parameters)["state"] == "complete"
    trials = trials_of(parameters)
    assert sorted(t["state"] for t in trials) == ["complete"] * 4 + ["failed"]
    (failure,) = [t["failure"] for t in trials if t["failure"]]
    assert failure["kind"] == "crashed"
    assert "forked from" in failure["message"]


@pytest.mark.skipif(sys.platform != "linux", reason="workers are spawned on other systems")
@pytest.mark.slow
@pytest.mark.full
def test_a_fork_server_that_is_killed_as_workers_start_is_started_alike() -> None:
    kill_fork_server()
    log = str(log_path(scratch_folder()))
    wait_for(lambda: log_of_new_fork_server() == log)
    killed: list[int | None] = [None]

    def attack() -> bool:
        if fork_server_pid() not in killed:
            killed.append(kill_fork_server())
        return len(killed) > 3

    with (
        meanwhile(attack),
        local_settings(),
        local_cluster(2) as cluster,
        distributed.Client(cluster) as client,
    ):
        wait_for(lambda: len(killed) > 3 and are_of_our_fork_server(client))
        kill_fork_server()  # once more, now that the cluster is up
        wait_for(lambda: are_of_our_fork_server(client))
        assert set(client.run(os.getenv, LOG_VARIABLE).values()) == {log}


@pytest.mark.skipif(sys.platform != "linux", reason="workers are spawned on other systems")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (
            "os.write(2, b'libmodel.so: cannot open')\nos._exit(3)",
            "code 3 .*: libmodel.so",
        ),
        pytest.param(
            "raise ImportError('no module libmodel')", "no module libmodel", marks=pytest.mark.full
        ),
        pytest.param("os.kill(os.getpid(), 9)", "SIGKILL", marks=pytest.mark.full),
        pytest.param("time.sleep(1000)", "not up after", marks=pytest.mark.full),
    ],
)
def test_workers_that_can_never_start_end_the_run_with_the_cause(
    tmp_path, monkeypatch, code, cause
) -> None:
    preload = tmp_path / "failing.py"
    preload.write_text(f"import os, time\n{code}\n")
    with local_cluster(1):  # then the fork server has imported everything
        hurry(monkeypatch)
    monkeypatch.setattr(local_workers, "PRELOAD", (str(preload), *local_workers.PRELOAD))
    with pytest.raises(NoWorkers, match=cause):
        local_cluster(2)


LOCAL = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from uuid import uuid4

import distributed

sys.path.insert(0, sys.argv[2])
from held_lock import hold
from prefect_tune.flows.workers import fork_server, local_nanny, local_workers
from prefect_tune.flows.workers.nanny_reports import enforce_limits
from prefect_tune.tasks.problem import TrialLimits

if sys.argv[3] == "spawned":
    fork_server.METHOD = local_nanny.METHOD = "spawn"
    local_workers._DASK_SETTINGS["distributed.worker.multiprocessing-method"] = "spawn"
with ThreadPoolExecutor(1) as thread:  # it ends; its children stay
    cluster = thread.submit(local_workers.local_cluster, 2).result()
with (
    local_workers.local_settings(),
    distributed.Client(cluster) as client,
    enforce_limits(client, uuid4(), TrialLimits(seconds=1000)),
):
    client.wait_for_workers(2)
    held = [client.submit(hold, sys.argv[1], pure=False) for _ in range(2)]
    sleep(1000)
"""


HOLD = """
import ctypes, os, subprocess, sys, time
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

def hold(folder):
    from prefect.context import TaskRunContext
    from prefect_tune.tasks.worker.trial_note import trial_noted

    run = SimpleNamespace(task_run=SimpleNamespace(id=uuid4(), flow_run_id=uuid4()))
    TaskRunContext.__var__.set(run)
    command = [sys.executable, "-c", "import time; time.sleep(1000)"]
    with trial_noted():
        for new_session in (False, True):
            child = subprocess.Popen(command, start_new_session=new_session)
            Path(folder, f"child {child.pid}").touch()
        if os.fork() == 0:
            Path(folder, f"child {os.getpid()}").touch()
            time.sleep(1000)
            os._exit(0)
        time.sleep(1)  # the nanny looks ten times a second
        Path(folder, f"worker {os.getpid()}").touch()
        ctypes.PyDLL(None).sleep(1000)  # with the interpreter's lock
"""


@contextmanager
def hidden_family(
    folder: Path, process: subprocess.Popen[bytes], n_workers: int = 2
) -> Iterator[set[int]]:
    """All below a process once its trials hold their interpreters; none of them stays."""
    family: set[int] = set()
    try:
        wait_for(lambda: len(list(folder.glob("worker *"))) == n_workers)
        family |= {p.pid for p in psutil.Process(process.pid).children(recursive=True)}
        assert {int(p.name.split()[1]) for p in folder.iterdir() if " " in p.name} <= family
        yield family
    finally:
        for pid in (process.pid, *family):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["forked", pytest.param("spawned", marks=pytest.mark.full)])
def test_nothing_is_left_of_a_killed_flow_whose_trials_hold_their_interpreters(
    tmp_path, way
) -> None:
    (tmp_path / "held_lock.py").write_text(HOLD)
    folder = tmp_path / "family"
    folder.mkdir()
    process = subprocess.Popen([sys.executable, "-c", LOCAL, str(folder), str(tmp_path), way])
    with hidden_family(folder, process) as family:
        os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda: not [p for p in family if is_alive(p)], 5)


@pytest.mark.slow
@pytest.mark.full
def test_nothing_is_left_of_a_killed_worker_command_whose_trial_holds_its_interpreter(
    tmp_path, monkeypatch
) -> None:
    (tmp_path / "dask").mkdir()
    (tmp_path / "dask" / "held_lock.py").write_text(HOLD)
    folder = tmp_path / "family"
    folder.mkdir()
    limits = TrialLimits(seconds=1000)
    with external_cluster(tmp_path / "dask") as external:
        command = external.start_worker(PYTHONPATH=str(tmp_path / "dask"))
        with (
            distributed.Client(external.address) as client,
            enforce_limits(client, uuid4(), limits),
        ):
            client.wait_for_workers(1, timeout=60)
            monkeypatch.syspath_prepend(tmp_path / "dask")
            client.submit(import_module("held_lock").hold, str(folder), pure=False)
            with hidden_family(folder, command, 1) as family:
                os.kill(command.pid, signal.SIGKILL)
                wait_for(lambda: not [p for p in family if is_alive(p)], 5)
