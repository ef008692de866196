"""What the processes of workers print, by Python, by C libraries and by child processes."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from processes import wait_for

from prefect_tune.tasks.worker.printed_output import Printed, take_printed

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


def test_what_is_printed_last_is_in_the_file_of_its_trial(tmp_path) -> None:
    code = """
for number in range(100):
    with trial_captured(worker, "t") as taken:
        os.write(1, b"%d" % (number % 10) * 60_000)
    assert len(taken[0].data) == 60_000, number
    assert set(taken[0].data.decode()) == {str(number % 10)}
"""
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr


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


def test_much_is_bounded_while_it_is_printed(tmp_path) -> None:
    code = """
from pathlib import Path
with trial_captured(worker, "t") as taken:
    for number in range(200_000):
        print(f"line {number:06} of very many lines that are all quite long, a hundred bytes or so")
        if number % 1000 == 0:
            size = sum(path.stat().st_size for path in Path(folder).iterdir())
            assert size <= 2_000_000, size
assert taken[0].is_cut
assert taken[0].data.startswith(b"line "), taken[0].data[:99]
assert b"line 199999" in taken[0].data
assert 990_000 < len(taken[0].data) <= 1_000_000
"""
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_killed_keeper_is_replaced_and_the_trial_goes_on(tmp_path) -> None:
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


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&-", "2>&-"])
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
