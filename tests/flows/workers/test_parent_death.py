"""Kill -9 of what started the workers: nothing of them is left, whatever they are doing."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from uuid import uuid4

import distributed
import psutil
import pytest
from external_clusters import external_cluster
from processes import is_alive, wait_for

from prefect_tune.flows.workers.nanny_reports import limits_kept
from prefect_tune.tasks.problem import TrialLimits

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
from prefect_tune.flows.workers.nanny_reports import limits_kept
from prefect_tune.tasks.problem import TrialLimits

if sys.argv[3] == "spawned":
    fork_server.METHOD = local_nanny.METHOD = "spawn"
    local_workers._DASK_SETTINGS["distributed.worker.multiprocessing-method"] = "spawn"
with ThreadPoolExecutor(1) as thread:  # it ends; its children stay
    cluster = thread.submit(local_workers.local_cluster, 2).result()
with (
    local_workers.local_settings(),
    distributed.Client(cluster) as client,
    limits_kept(client, uuid4(), TrialLimits(seconds=1000)),
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


@pytest.mark.parametrize("way", ["forked", "spawned"])
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
            limits_kept(client, uuid4(), limits),
        ):
            client.wait_for_workers(1, timeout=60)
            monkeypatch.syspath_prepend(tmp_path / "dask")
            client.submit(import_module("held_lock").hold, str(folder), pure=False)
            with hidden_family(folder, command, 1) as family:
                os.kill(command.pid, signal.SIGKILL)
                wait_for(lambda: not [p for p in family if is_alive(p)], 5)
