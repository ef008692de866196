"""Processes of workers: what they print, what they start, how they import."""

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from processes import wait_for

from prefect_tune.tasks.worker import process_tree
from prefect_tune.tasks.worker.printed_output import Printed, take_printed
from prefect_tune.tasks.worker.process_tree import ProcessTree
from prefect_tune.tasks.worker.start_log import quick_imports

pytestmark = pytest.mark.slow

PREPARED = """
import ctypes, os, signal, subprocess, sys
from types import SimpleNamespace
from prefect_tune.tasks.worker import printed_output
from prefect_tune.tasks.worker.printed_output import trial_captured

folder = sys.argv[1]
worker = SimpleNamespace(local_directory=folder + "/worker")
libc = ctypes.CDLL(None)

def print_by_all_ways():
    print("python")
    print("python, without end", end="|", file=sys.stderr)
    libc.printf(b"c, without end|")
    subprocess.run(["sh", "-c", "echo child; echo error of child >&2"])
    os.write(1, b"descriptor\\n")
"""

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
"""That of most users: Python and C hold back what they print."""
ALL = ("python", "python, without end", "c, without end", "child", "error of child", "descriptor")


def run(code: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """A process that prints as a worker does."""
    command = [sys.executable, "-c", PREPARED + code, str(folder)]
    return subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=240
    )


def printed(folder: Path, trial: str = "t") -> Printed:
    """What the nanny finds of a trial whose worker is gone."""
    return asyncio.run(take_printed(trial, SimpleNamespace(local_directory=str(folder))))


def test_all_that_a_trial_prints_is_taken_and_nothing_else(tmp_path) -> None:
    code = """
print("before")
libc.puts(b"c before")
with trial_captured(worker, "t") as taken:
    print_by_all_ways()
with trial_captured(worker, "silent") as nothing:
    pass
print("after")
print(sorted(taken[0].data.decode().replace("|", "\\n").split("\\n")))
assert nothing[0].data == b""
libc.puts(b"c after")
"""
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    before, c_before, after, taken, c_after = done.stdout.splitlines()
    assert (before, c_before, after, c_after) == ("before", "c before", "after", "c after")
    assert taken == str(sorted(["", *ALL]))
    assert not list(tmp_path.iterdir())


def test_what_was_printed_is_left_when_the_process_is_killed(tmp_path) -> None:
    code = """
with trial_captured(worker, "t", ["my secret"]) as taken:
    print_by_all_ways()
    libc.puts(b"my secret: postgresql://me:secret@host/db")
    os.write(2, b"last")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = run(code, tmp_path)
    assert (done.stdout, done.stderr) == ("", "")
    (left,) = tmp_path.iterdir()
    assert left.stat().st_mode & 0o777 == 0o600
    taken = printed(tmp_path).data.decode()
    assert taken.endswith("last")
    assert "***: postgresql://me:***@host/db" in taken
    assert all(part in taken for part in ("python\n", "child\n", "descriptor\n"))
    assert not list(tmp_path.iterdir())


def test_a_killed_keeper_is_replaced_and_the_trial_continues(tmp_path) -> None:
    code = """
import psutil
with trial_captured(worker, "t") as taken:
    print("first")
    printed_output.flush_streams()
    for process in psutil.process_iter():
        try:
            if folder + "/trial-t.output" in [file.path for file in process.open_files()]:
                process.kill()
                break
        except psutil.Error:
            continue
    else:
        raise LookupError("there is no keeper")
    for _ in range(20_000):  # more than fits into a pipe
        os.write(1, b"x" * 99 + b"\\n")
    os.write(1, b"end\\n")
assert taken[0].data.endswith(b"end\\n"), taken
with trial_captured(worker, "next") as taken:
    print("next")
assert taken[0].data == b"next\\n"
"""
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "closed", ["<&- >&- 2>&-", *(pytest.param(c, marks=pytest.mark.full) for c in (">&-", "2>&-"))]
)
def test_closed_streams_take_no_harm(tmp_path, closed) -> None:
    code = """
from pathlib import Path
with trial_captured(worker, "t") as taken:
    print("python")
    libc.puts(b"c")
    os.write(1, b"descriptor\\n")
Path(folder, "taken").write_bytes(taken[0].data)
"""
    script = tmp_path / "script.py"
    script.write_text(PREPARED + code)
    command = f"{sys.executable} {script} {tmp_path} {closed}"
    subprocess.run(["sh", "-c", command], env=ENVIRONMENT, check=True, timeout=240)
    assert (tmp_path / "taken").read_text() == "python\nc\ndescriptor\n"


def test_no_keeper_outlives_its_worker(tmp_path) -> None:
    code = """
import time
with trial_captured(worker, "t") as taken:
    print("on", flush=True)
    time.sleep(1000)
"""
    process = subprocess.Popen([sys.executable, "-c", PREPARED + code, str(tmp_path)])
    marks = wait_for(lambda: list(tmp_path.glob("*.output")))
    keepers = wait_for(lambda: keepers_of(marks[0]))
    process.kill()
    process.wait()
    psutil.wait_procs(keepers, timeout=60)
    assert not [keeper for keeper in keepers if keeper.is_running()]
    assert printed(tmp_path).data == b"on\n"


def keepers_of(path: Path) -> list[psutil.Process]:
    """The processes that have a file open."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(path) in [file.path for file in process.open_files()]:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("start", ["", "printed_output.dask_setup(worker)\n"])
def test_a_trial_that_closes_or_replaces_its_streams_leaves_the_next_ones_theirs(
    tmp_path, start
) -> None:
    code = f"""
{start}
kept = sys.stdout
with trial_captured(worker, "closed"):
    sys.stdout.close()
    sys.stderr.close()
    os.close(1)
with trial_captured(worker, "replaced"):
    sys.stdout = sys.stderr = open(os.devnull, "w")
with trial_captured(worker, "t") as taken:
    print_by_all_ways()
    print("kept" if kept.closed else "kept is open", file=None if kept.closed else kept)
found = taken[0].data.decode()
assert all(part in found for part in {ALL!r}), found
assert {bool(start)} == ("kept is open" in found)
"""
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr


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


@pytest.fixture(params=["lists of Linux", pytest.param("all processes", marks=pytest.mark.full)])
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
def test_memory_that_forks_share_counts_once_and_private_memory_in_full(
    tmp_path, own, low, high
) -> None:
    with running(SHARES, tmp_path, own) as pid:
        tree = ProcessTree(pid)
        assert tree.memory_above(low * 10**6) is not None
        assert tree.memory_above(high * 10**6) is None


@pytest.fixture(autouse=True)
def collected():
    yield
    gc.unfreeze()
    gc.enable()


def test_nothing_is_collected_while_importing_and_nothing_imported_is_looked_through() -> None:
    made = []
    with quick_imports():
        assert not gc.isenabled()
        made.append([])
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    assert not any(one is made[0] for one in gc.get_objects())


def test_a_process_without_garbage_collection_stays_without_it() -> None:
    gc.disable()
    with quick_imports():
        pass
    assert not gc.isenabled()
