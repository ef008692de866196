"""The process that forks sandboxes: threads, shutdown, and the fallback without a zygote."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sandbox_calls as calls
from processes import is_alive, kill, wait_for
from sandbox_calls import Caller, begun, called, value_of

from prefect_tune.tasks.sandbox import sandbox as sandbox_module
from prefect_tune.tasks.sandbox import zygote as zygote_module
from prefect_tune.tasks.sandbox.sandbox import CallEnded, NoSandbox, Sandbox, Sandboxes
from prefect_tune.tasks.sandbox.zygote import ZYGOTE, Zygote

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="there are zygotes on Linux only"),
]


@pytest.fixture
def zygote(monkeypatch) -> Iterator[Zygote]:
    """Start a zygote for a single test."""
    zygote = Zygote()
    monkeypatch.setattr(sandbox_module, "ZYGOTE", zygote)
    yield zygote
    zygote._end("")


def answer() -> int:
    """Return the value of a call in a new sandbox."""
    with Sandboxes().taken(Caller()) as sandbox:
        try:
            return int(called(sandbox, calls.in_steps, names=["a"]))
        finally:
            sandbox.end()


def n_threads(pid: int | None) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def test_death_of_a_zygote_ends_only_calls_in_the_forked_sandboxes(zygote, tmp_path) -> None:
    first, second = Sandbox(), Sandbox()
    assert n_threads(zygote.pid) == 1
    both = [begun(sandbox, calls.pause) for sandbox in (first, second)]
    kill(zygote.pid)
    with pytest.raises(CallEnded, check=lambda e: e.may_repeat):
        value_of(both[0])
    third = Sandbox()
    longer = begun(third, calls.pause, until=tmp_path / "go")
    with pytest.raises(CallEnded, check=lambda e: e.may_repeat):
        value_of(both[1])
    (tmp_path / "go").touch()
    assert value_of(longer) == "done"
    assert not is_alive(first.tree.pid)
    third.end()


def test_frozen_zygote_is_replaced(zygote, monkeypatch) -> None:
    assert answer() == 1
    former = zygote.pid
    monkeypatch.setattr(zygote_module, "_ANSWER_SECONDS", 0.2)
    os.kill(former, signal.SIGSTOP)
    with Sandboxes().taken(Caller()) as sandbox:
        monkeypatch.undo()
        assert called(sandbox, calls.in_steps, names=[]) == 0
        sandbox.end()
    assert not is_alive(former)


@pytest.mark.usefixtures("zygote")  # which has not imported it yet
def test_failed_import_is_reported_and_can_be_repaired(tmp_path, monkeypatch) -> None:
    broken = tmp_path / "scipy.py"
    broken.write_text("raise ImportError('libgomp.so.1: cannot open shared object file')")
    monkeypatch.setattr(sandbox_module, "_START_SECONDS", 0.0)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(NoSandbox, match="libgomp"):
        answer()
    broken.unlink()
    assert answer() == 1


def test_without_a_zygote_each_sandbox_is_a_fresh_interpreter(zygote, monkeypatch) -> None:
    monkeypatch.setattr(zygote_module, "IS_LINUX", False)
    sandboxes = Sandboxes()
    with sandboxes.taken(Caller()) as sandbox:
        assert called(sandbox, calls.in_steps, names=["a"]) == 1
    with sandboxes.taken(Caller()) as again:
        assert again is sandbox
        with pytest.raises(CallEnded, check=lambda e: e.may_repeat):
            called(sandbox, calls.end, number=signal.SIGKILL)
    assert zygote.pid is None


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


@pytest.mark.parametrize("how", ["forked", "copy", pytest.param("fresh", marks=pytest.mark.full)])
def test_killed_worker_leaves_no_process(tmp_path, how) -> None:
    tests = Path(calls.__file__).parent
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, how, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(tests)},
    )
    wait_for(lambda: (tmp_path / "all").exists() and (tmp_path / "worker").exists())
    ours = [int(pid) for pid in (tmp_path / "worker").read_text().split()]
    if how != "fresh":
        assert n_threads(ours[1]) == 1
    kill(worker.pid)
    worker.wait()
    started = calls.started_in(tmp_path)
    assert len(started) == 4
    if how == "fresh":  # nobody knows a process whose parent has ended
        kill(started.pop(".orphan"))
    wait_for(lambda: not any(map(is_alive, (*ours, *started.values()))))


def test_forked_copy_of_a_worker_does_not_end_sandboxes_of_the_worker() -> None:
    sandboxes = Sandboxes()
    with sandboxes.taken(Caller()) as sandbox:
        if (pid := os.fork()) == 0:
            sandboxes.close()
            os._exit(ZYGOTE.pid is not None)
        assert os.waitpid(pid, 0)[1] == 0
        assert is_alive(sandbox.tree.pid)
