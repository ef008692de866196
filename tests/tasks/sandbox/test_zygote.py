"""The process that forks sandboxes: its threads, its end, and what happens without it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sandbox_calls as calls
from other_user import NOBODY
from processes import is_alive, kill, run_python, wait_for
from sandbox_calls import Caller, begun, called, value_of

from prefect_tune.tasks.sandbox import sandbox as sandbox_module
from prefect_tune.tasks.sandbox import zygote as zygote_module
from prefect_tune.tasks.sandbox.sandbox import CallEnded, Limits, NoSandbox, Sandbox, Sandboxes
from prefect_tune.tasks.sandbox.zygote import ZYGOTE, Zygote

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="there are zygotes on Linux only"),
]


@pytest.fixture
def zygote(monkeypatch) -> Iterator[Zygote]:
    """One of this test alone."""
    zygote = Zygote()
    monkeypatch.setattr(sandbox_module, "ZYGOTE", zygote)
    yield zygote
    zygote._end("")


def answer() -> str:
    """The value of a call in a new sandbox."""
    with Sandboxes().taken(Caller()) as sandbox:
        try:
            return str(called(sandbox, calls.pause, seconds=0))
        finally:
            sandbox.end()


def n_threads(pid: int | None) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def test_it_has_one_thread_and_serves_after_each_kill(zygote) -> None:
    for _ in range(2):
        assert answer() == "done"
        assert n_threads(zygote.pid) == 1
        kill(zygote.pid)
        wait_for(lambda: not is_alive(zygote.pid))
    assert answer() == "done"


def test_a_zygote_that_is_killed_in_calls_ends_them_and_none_of_the_next_zygote(zygote) -> None:
    first, second = Sandbox(), Sandbox()
    both = [begun(sandbox, calls.pause, seconds=1000) for sandbox in (first, second)]
    kill(zygote.pid)
    with pytest.raises(CallEnded) as ended:
        value_of(both[0])
    assert ended.value.may_repeat
    third = Sandbox()
    longer = begun(third, calls.pause, seconds=3)
    with pytest.raises(CallEnded) as ended:
        value_of(both[1])
    assert ended.value.may_repeat
    assert value_of(longer) == "done"
    assert not is_alive(first.tree.pid)
    third.end()


def test_a_stopped_zygote_is_replaced(zygote, monkeypatch) -> None:
    assert answer() == "done"
    former = zygote.pid
    monkeypatch.setattr(zygote_module, "_ANSWER_SECONDS", 1.0)
    os.kill(former, signal.SIGSTOP)
    with Sandboxes().taken(Caller()) as sandbox:
        monkeypatch.undo()
        assert called(sandbox, calls.pause, seconds=0) == "done"
        sandbox.end()
    assert not is_alive(former)


def test_a_failed_import_is_told_and_repaired_without_a_new_worker(
    zygote,  # noqa: ARG001 - no zygote has imported it yet
    tmp_path,
    monkeypatch,
) -> None:
    broken = tmp_path / "scipy.py"
    broken.write_text("raise ImportError('libgomp.so.1: cannot open shared object file')")
    monkeypatch.setattr(sandbox_module, "_START_SECONDS", 0.0)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(NoSandbox, match="libgomp"):
        answer()
    broken.unlink()
    assert answer() == "done"


FORKS_NOTHING = f"""
import os, resource, sys
from prefect_tune.tasks.sandbox import sandbox
from prefect_tune.tasks.sandbox.zygote import ZYGOTE
import sandbox_calls as calls

from prefect_tune.tasks.sandbox.zygote import _Copy, _PRELOADED, control_process

for module in _PRELOADED:  # others may not be able to read them
    __import__(module)
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
control_process(4, 1)  # a change of the user closes the folder of a process in /proc
ZYGOTE._start(_Copy)
print(calls.called(sandbox.Sandbox(), calls.pause, seconds=0))
resource.prlimit(ZYGOTE.pid, resource.RLIMIT_NPROC, (1, 1))
sandbox._START_SECONDS = 0.0
try:
    with sandbox.Sandboxes().taken(calls.Caller()):
        print("started")
except sandbox.NoSandbox as error:
    print(error)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_a_fork_that_fails_is_told_with_its_cause() -> None:
    tests = Path(calls.__file__).parent
    environment = {**os.environ, "TMPDIR": "/tmp", "PYTHONPATH": str(tests)}  # noqa: S108 - anybody's
    told = run_python(FORKS_NOTHING, env=environment, cwd="/")
    assert told.startswith("done\nno process for trials")
    assert "Resource temporarily unavailable" in told
    assert "ulimit -u" in told


def test_where_there_is_no_zygote_each_sandbox_is_a_fresh_interpreter(
    zygote, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(zygote_module, "IS_LINUX", False)
    sandboxes = Sandboxes()
    for seconds in (0, 1000):
        with sandboxes.taken(Caller()) as sandbox:
            started = tmp_path / str(seconds)
            call = begun(sandbox, calls.pause, Limits(60), seconds=seconds, started=started)
            if seconds:
                wait_for(started.exists)
                kill(sandbox.tree.pid)
                with pytest.raises(CallEnded, match="was killed"):
                    value_of(call)
            else:
                assert value_of(call) == "done"
                former = sandbox.tree.pid
            assert sandbox.tree.pid == former
    assert zygote.pid is None
    sandboxes.close()


WORKER = """
import sys
from pathlib import Path
from prefect_tune.tasks.sandbox import zygote
from prefect_tune.tasks.sandbox.sandbox import Sandbox
import sandbox_calls as calls

how, folder = sys.argv[1], Path(sys.argv[2])
zygote.IS_LINUX = how != "fresh"
if how == "copy":
    zygote.ZYGOTE.start_as_copy()
sandbox = Sandbox()
call = calls.begun(sandbox, calls.start_processes, folder=folder)
ids = [p for p in (sandbox.tree.pid, zygote.ZYGOTE.pid) if p]
(folder / "worker").write_text(" ".join(map(str, ids)))
call.next_step()
"""


@pytest.mark.parametrize("how", ["forked", "copy", "fresh"])
def test_nothing_is_left_of_a_worker_that_is_killed(tmp_path, how) -> None:
    tests = Path(calls.__file__).parent
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, how, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(tests)},
    )
    wait_for(lambda: (tmp_path / "all").exists() and (tmp_path / "worker").exists(), 60)
    ours = [int(pid) for pid in (tmp_path / "worker").read_text().split()]
    if how != "fresh":
        assert n_threads(ours[1]) == 1
    kill(worker.pid)
    worker.wait()
    started = calls.started_in(tmp_path)
    assert len(started) == 4
    if how == "fresh":  # nobody knows a process whose parent has ended
        kill(started.pop(".orphan"))
    wait_for(lambda: not any(map(is_alive, (*ours, *started.values()))), 30)


def test_a_copy_of_the_process_leaves_its_sandboxes_alone() -> None:
    sandboxes = Sandboxes()
    with sandboxes.taken(Caller()) as sandbox:
        if (pid := os.fork()) == 0:
            sandboxes.close()
            os._exit(ZYGOTE.pid is not None)
        assert os.waitpid(pid, 0)[1] == 0
        assert is_alive(sandbox.tree.pid)
