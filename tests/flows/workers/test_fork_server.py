"""The fork server of a command: a copy of its process, which takes nothing else with it."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
from inputs import write_table
from processes import COMMAND, command_line, environment, started, wait_for, workers_of
from user_spaces import SLEEPING

pytestmark = pytest.mark.slow

EARLY = """
import fcntl, os, signal, sys, threading
from pathlib import Path

import psutil

from prefect_tune.deployments.server.prefect_settings import QUIET_CONSOLE, set_defaults
from prefect_tune.flows.workers.fork_server import early_fork_server, fork_server_pid

set_defaults(QUIET_CONSOLE)
signal.signal(signal.SIGTERM, lambda *_: None)
lock = Path(sys.argv[1]).open("w")
fcntl.flock(lock, fcntl.LOCK_EX)
with early_fork_server() as start:
    import prefect_tune.flows.workers.preloaded

    if sys.argv[2] == "thread":
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    start()
    server = psutil.Process(fork_server_pid())
    print("copy" if server.cmdline() == psutil.Process().cmdline() else "new")
    lock.close()
    with Path(sys.argv[1]).open("w") as again:
        fcntl.flock(again, fcntl.LOCK_EX)  # waits for ever for a copy that has it
    if sys.argv[2] == "end":
        while "SigCgt" in (status := Path(f"/proc/{server.pid}/status").read_text()):
            caught = int(status.split("SigCgt:")[1].split()[0], 16)
            if caught & 1 << signal.SIGUSR2 - 1:  # it is tied to this process
                break
        server.terminate()
        print("ended by", os.waitpid(server.pid, 0)[1])
psutil.wait_procs([server], timeout=60)
print("left" if server.is_running() else "gone")
"""


def early(tmp_path: Path, how: str) -> list[str]:
    """What a new process prints that starts its fork server early."""
    done = subprocess.run(
        [sys.executable, "-c", EARLY, tmp_path / "lock", how],
        env=environment(tmp_path), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_process_with_one_thread_is_copied_without_its_locks(tmp_path) -> None:
    assert early(tmp_path, "copy") == ["copy", "gone"]


def test_a_process_with_another_thread_is_not_copied(tmp_path) -> None:
    assert early(tmp_path, "thread") == ["new", "gone"]


def test_a_copy_takes_no_signal_handlers(tmp_path) -> None:
    assert early(tmp_path, "end") == ["copy", "ended by 15", "gone"]


def test_workers_of_a_command_are_forked_from_its_copy(tmp_path, server) -> None:
    (tmp_path / "slow.py").write_text(SLEEPING.format(seconds=0.3))
    data, space = write_table(tmp_path), f"{tmp_path}/slow.py:space"
    with started(
        "run", data, "--target", "target", "--space", space, "--workers", 1, "--trials", 40,
        home=tmp_path / "home", server=server,
    ) as process:  # fmt: skip
        wait_for(lambda: workers_of(process) or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        family = psutil.Process(process.pid).children(recursive=True)
        assert not any("multiprocessing.forkserver" in " ".join(command_line(p)) for p in family)


def test_a_mistake_that_is_found_in_the_data_leaves_no_process(tmp_path) -> None:
    with TemporaryDirectory() as temporary:
        done = subprocess.run(
            [*COMMAND, "run", str(write_table(tmp_path)), "--target", "no_such_column"],
            env={**environment(tmp_path / "home"), "TMPDIR": temporary},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert "no_such_column" in done.stderr
        left = [p for p in psutil.process_iter() if temporary in environment_of(p).values()]
        assert not left


def environment_of(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}
