"""A process with its descendants: found, measured and ended together."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from processes import is_alive, wait_for

from prefect_tune.tasks.sandbox import process_tree
from prefect_tune.tasks.sandbox.process_tree import ProcessTree, kill_below

pytestmark = pytest.mark.slow

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


@pytest.fixture(params=["lists of Linux", pytest.param("all processes", marks=pytest.mark.full)])
def lists(request, monkeypatch) -> None:
    """Where the system lists children, and where it does not."""
    if request.param == "all processes":
        monkeypatch.setattr(process_tree, "_HAS_LISTS", False)


@pytest.mark.usefixtures("lists")
@pytest.mark.parametrize("is_dead", [False, True])
def test_a_process_ends_with_all_that_it_has_started(tmp_path, is_dead) -> None:
    with running(FAMILY, tmp_path) as pid:
        tree = ProcessTree(pid)
        assert not tree.has_ended()
        if is_dead:
            os.kill(pid, 9)
            wait_for(tree.has_ended)
        tree.end()
        members = noted(tmp_path)
        assert set(members) == {"child", "session", "orphan"}
        wait_for(lambda: not any(map(is_alive, (pid, *members.values()))), 10)


def test_all_below_a_process_is_killed_but_not_the_process(tmp_path) -> None:
    with running(FAMILY, tmp_path) as pid:
        members = noted(tmp_path)
        assert kill_below(pid)
        wait_for(lambda: not is_alive(members["child"]) and not is_alive(members["session"]), 10)
        assert is_alive(pid)


@pytest.mark.parametrize(("own", "low", "high"), [("shared", 150, 300), ("own", 350, 500)])
def test_memory_that_forks_share_counts_once_and_private_memory_in_full(
    tmp_path, own, low, high
) -> None:
    with running(SHARES, tmp_path, own) as pid:
        tree = ProcessTree(pid)
        assert tree.memory_above(low * 10**6) is not None
        assert tree.memory_above(high * 10**6) is None
