"""A process with its descendants: found, measured and ended together."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from processes import is_alive, wait_for

from prefect_tune.tasks.sandbox import process_tree
from prefect_tune.tasks.sandbox.process_tree import ProcessTree

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
    own = bytearray(os.urandom(1)) * 100_000_000
    Path(sys.argv[1], "all").touch()
time.sleep(1000)
"""


@contextmanager
def running(script: str, folder: Path) -> Iterator[int]:
    """A script's process once it has made its file `all`; no process that it notes stays."""
    process = subprocess.Popen([sys.executable, "-c", script, str(folder)])
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


@pytest.mark.parametrize(
    "has_lists", [True, pytest.param(False, marks=pytest.mark.full)], ids=["Linux", "others"]
)
def test_a_process_ends_with_all_that_it_has_started(tmp_path, monkeypatch, has_lists) -> None:
    if not has_lists:
        monkeypatch.setattr(process_tree, "_HAS_LISTS", False)
    with running(FAMILY, tmp_path) as pid:
        tree = ProcessTree(pid)
        assert not tree.has_ended()
        tree.end()
        members = noted(tmp_path)
        assert set(members) == {"child", "session", "orphan"}
        wait_for(lambda: not any(map(is_alive, (pid, *members.values()))))


def test_memory_that_forks_share_counts_once_and_private_memory_in_full(tmp_path) -> None:
    with running(SHARES, tmp_path) as pid:
        tree = ProcessTree(pid)
        assert tree.memory_above(250 * 10**6) is not None
        assert tree.memory_above(450 * 10**6) is None
