"""Processes with all that they have started, however those have hidden."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from processes import wait_for

from prefect_tune.tasks.worker import process_tree
from prefect_tune.tasks.worker.process_tree import ProcessTree

FAMILY = """
import os, subprocess, sys, time
from pathlib import Path

folder = Path(sys.argv[1])

def started(name, new_session):
    command = [sys.executable, "-c", "import time; time.sleep(1000)"]
    process = subprocess.Popen(command, start_new_session=new_session)
    (folder / name).write_text(str(process.pid))

os.setpgid(0, 0)
started("child", False)
started("session", True)
if os.fork() == 0:  # it ends, and its child is nobody's
    started("orphan", False)
    os._exit(0)
os.wait()
(folder / "all").touch()
time.sleep(1000)
"""

SHARES = """
import os, sys, time
from pathlib import Path

held = bytearray(os.urandom(1)) * 200_000_000
if os.fork() == 0:
    Path(sys.argv[1], "child").write_text(str(os.getpid()))
    if sys.argv[2] == "own":
        own = bytearray(os.urandom(1)) * 200_000_000
    Path(sys.argv[1], "all").touch()
time.sleep(1000)
"""


@contextmanager
def running(script: str, folder: Path, *arguments: str) -> Iterator[int]:
    """A script's process once it has made its file `all`; no process that it notes stays."""
    process = subprocess.Popen([sys.executable, "-c", script, str(folder), *arguments])
    try:
        wait_for((folder / "all").exists)
        yield process.pid
    finally:
        for pid in (process.pid, *noted(folder).values()):
            with suppress(psutil.Error):
                psutil.Process(pid).kill()
        process.wait()


def noted(folder: Path) -> dict[str, int]:
    return {p.name: int(p.read_text()) for p in folder.iterdir() if p.read_text()}


def state(pid: int) -> str:
    try:
        return psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_DEAD


@pytest.fixture(params=["lists of Linux", "all processes"])
def lists(request, monkeypatch) -> None:
    """Where the system lists children, and where it does not."""
    if request.param == "all processes":
        monkeypatch.setattr(process_tree, "_HAS_LISTS", False)
    elif not process_tree._HAS_LISTS:
        pytest.skip("this system has none")


@pytest.mark.usefixtures("lists")
def test_a_process_ends_with_all_that_it_has_started(tmp_path) -> None:
    with running(FAMILY, tmp_path) as pid:
        ProcessTree(pid).end()
        members = noted(tmp_path)
        assert set(members) == {"child", "session", "orphan"}
        gone = (psutil.STATUS_DEAD, psutil.STATUS_ZOMBIE)
        wait_for(lambda: all(state(p) in gone for p in (pid, *members.values())), 10)


def test_what_a_dead_process_has_left_is_ended_and_others_stay(tmp_path) -> None:
    with running(FAMILY, tmp_path) as pid:
        tree = ProcessTree(pid)
        os.kill(pid, 9)
        wait_for(lambda: state(pid) == psutil.STATUS_ZOMBIE)
        tree.end()
        wait_for(lambda: not any(psutil.pid_exists(p) for p in noted(tmp_path).values()), 10)


def test_a_frozen_tree_stands_still_until_it_is_thawed(tmp_path) -> None:
    with running(FAMILY, tmp_path) as pid:
        tree = ProcessTree(pid)
        members = (pid, *noted(tmp_path).values())
        tree.freeze()
        wait_for(lambda: {state(p) for p in members} == {psutil.STATUS_STOPPED}, 10)
        tree.thaw()
        wait_for(lambda: psutil.STATUS_STOPPED not in {state(p) for p in members}, 10)


def test_below_a_process_all_but_some_is_ended(tmp_path) -> None:
    with running(FAMILY, tmp_path) as pid:
        tree, members = ProcessTree(pid), noted(tmp_path)
        tree.end_below({members["child"]})
        wait_for(lambda: state(members["session"]) == psutil.STATUS_ZOMBIE, 10)
        assert state(members["child"]) != psutil.STATUS_ZOMBIE
        assert state(pid) != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(("own", "low", "high"), [("shared", 150, 300), ("own", 350, 500)])
def test_memory_that_forks_share_counts_once_and_their_own_besides(
    tmp_path, own, low, high
) -> None:
    with running(SHARES, tmp_path, own) as pid:
        tree = ProcessTree(pid)
        assert tree.bytes_above(low * 10**6) is not None
        assert tree.bytes_above(high * 10**6) is None
