"""Calls in sandboxes: values, limits, deaths, and processes that are replaced."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
import sandbox_calls as calls
from processes import is_alive, kill, wait_for
from sandbox_calls import Caller, begun, called, value_of

from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.prefect_tasks import ShownCall
from prefect_tune.tasks.sandbox.sandbox import (
    CallEnded,
    Limits,
    NoSandbox,
    Sandbox,
    Sandboxes,
)

pytestmark = pytest.mark.slow
SOON = 30.0
"""Seconds within which a call that is ended has ended, on a busy machine."""


@pytest.fixture(scope="module")
def sandboxes() -> Iterator[Sandboxes]:
    sandboxes = Sandboxes()
    yield sandboxes
    sandboxes.close()


@pytest.fixture
def sandbox(sandboxes) -> Iterator[Sandbox]:
    with sandboxes.taken(Caller()) as sandbox:
        yield sandbox
        sandbox.end()


def next_pid(sandboxes: Sandboxes) -> int:
    """The process of the next call."""
    with sandboxes.taken(Caller()) as sandbox:
        return int(called(sandbox, calls.place)["pid"])


def ended(call: Any) -> CallEnded:
    """How a call ends that has no value."""
    since = monotonic()
    with pytest.raises(CallEnded) as raised:
        value_of(call)
    assert monotonic() - since < SOON
    return raised.value


def test_a_process_runs_one_call_after_another_without_prefect_and_dask(sandboxes) -> None:
    with sandboxes.taken(Caller()) as sandbox:
        here = called(sandbox, calls.place)
        assert called(sandbox, calls.in_steps, names=["a", "b"]) == 2
        assert here["modules"].isdisjoint({"prefect", "prefect_dask", "dask", "distributed"})
    assert next_pid(sandboxes) == here["pid"] != os.getpid()


def test_a_new_process_starts_where_its_worker_is(tmp_path, monkeypatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.setenv("ONLY_NOW", "x" * 100_000)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    for expected in (tmp_path, Path("/")):
        sandbox = Sandbox()
        here = called(sandbox, calls.place)
        assert here["folder"] == str(expected)
        assert str(tmp_path) in here["path"]
        assert here["environment"]["ONLY_NOW"] == "x" * 100_000
        assert here["environment"]["OMP_NUM_THREADS"] == "1"
        sandbox.end()
        if expected == tmp_path:
            os.chdir(gone)
            gone.rmdir()


def test_steps_are_reported_one_by_one(sandbox) -> None:
    call = begun(sandbox, calls.in_steps, names=["impute", "fit model"])
    for name in ("impute", "fit model"):
        step = call.next_step()
        assert step is not None
        assert step.step == name
        assert call.step_done().keys == ("key",)
    assert call.next_step() is None
    assert call.value() == 2


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(BadInput, BadInput), (calls.OwnError, RuntimeError), (SystemExit, RuntimeError)],
)
def test_an_error_is_raised_in_the_worker_and_its_process_replaced(
    sandboxes, kind, expected
) -> None:
    before = next_pid(sandboxes)
    with pytest.raises(expected, match="wrong"), sandboxes.taken(Caller()) as sandbox:
        called(sandbox, calls.raise_error, kind=kind)
    assert next_pid(sandboxes) != before


def test_a_value_that_cannot_be_sent_is_an_error(sandbox) -> None:
    with pytest.raises(RuntimeError, match="cannot be sent"):
        called(sandbox, calls.unsendable)


@pytest.mark.parametrize("function", [calls.pause, calls.hold_interpreter])
def test_a_call_over_its_time_is_ended(sandboxes, function) -> None:
    with sandboxes.taken(Caller()) as sandbox:
        how = ended(begun(sandbox, function, Limits(0.5, remedy="use less"), seconds=1000))
        assert how.kind == FailureKind.TIMEOUT
        assert not how.may_repeat
        assert "0.5 s (use less)" in str(how)
        assert how.at.seconds() > 0.5
        assert not is_alive(sandbox.tree.pid)


def test_time_of_loading_and_of_waits_does_not_count(sandbox) -> None:
    times = {"load_seconds": 1.5, "wait_seconds": 1.5, "seconds": 0.2}
    call = begun(sandbox, calls.slow_start, Limits(1.0), **times)
    assert value_of(call) == "done"
    assert call.progress.load_seconds > 1.4
    times = {"load_seconds": 0, "wait_seconds": 0, "seconds": 1000}
    assert ended(begun(sandbox, calls.slow_start, Limits(1.0), **times)).kind == FailureKind.TIMEOUT


@pytest.mark.parametrize("in_child", [False, True])
def test_memory_of_a_call_and_its_processes_is_limited(sandbox, in_child) -> None:
    limits = Limits(memory_bytes=700 * 10**6)
    how = ended(begun(sandbox, calls.take_memory, limits, n_bytes=10**9, in_child=in_child))
    assert how.kind == FailureKind.MEMORY
    assert "--trial-memory" in str(how)


def test_a_process_that_keeps_memory_is_replaced(sandboxes) -> None:
    before = next_pid(sandboxes)
    for n_bytes, is_kept in ((10**7, True), (6 * 10**8, False)):
        with sandboxes.taken(Caller()) as sandbox:
            limits = Limits(memory_bytes=10**9)
            arguments = {"n_bytes": n_bytes, "in_child": False, "keep": True}
            assert value_of(begun(sandbox, calls.take_memory, limits, **arguments)) == "done"
        assert (next_pid(sandboxes) == before) == is_kept


def test_a_call_that_nobody_wants_is_ended(sandbox, tmp_path) -> None:
    caller = Caller()
    call = begun(sandbox, calls.pause, None, caller, seconds=1000, started=tmp_path / "started")
    wait_for((tmp_path / "started").exists)
    caller.wants = False
    assert ended(call).kind is None
    assert not is_alive(sandbox.tree.pid)


def test_an_interrupted_worker_leaves_no_running_call(sandboxes) -> None:
    with suppress(KeyboardInterrupt), sandboxes.taken(Caller()) as sandbox:
        begun(sandbox, calls.pause, seconds=1000)
        raise KeyboardInterrupt
    assert not is_alive(sandbox.tree.pid)


@pytest.mark.parametrize("what", calls.DAMAGES)
def test_a_damaged_process_is_replaced_and_no_other(sandboxes, what) -> None:
    before = next_pid(sandboxes)
    with sandboxes.taken(Caller()) as sandbox:
        assert called(sandbox, calls.damage, what=what) == what
    assert (next_pid(sandboxes) == before) == (what == "nothing")


@pytest.mark.parametrize(
    ("number", "text", "may_repeat"),
    [
        (signal.SIGKILL, "was killed", True),
        (signal.SIGSEGV, "SIGSEGV", False),
        (-3, "exited with code 3", False),
    ],
)
def test_the_end_of_a_process_is_told_and_the_next_call_runs(
    sandboxes, number, text, may_repeat
) -> None:
    with sandboxes.taken(Caller()) as sandbox:
        how = ended(begun(sandbox, calls.end, number=number))
    assert text in str(how)
    assert (how.kind, how.may_repeat) == (FailureKind.CRASHED, may_repeat)
    assert next_pid(sandboxes) != sandbox.tree.pid


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_call_is_tried_again_once_if_its_process_is_killed(tmp_path, times) -> None:
    store = SimpleNamespace(url=str(tmp_path), database=f"sqlite:///{tmp_path}/index.db")
    context: Any = SimpleNamespace(memory_limit_bytes=None, store=store)
    shown = ShownCall("call", context, "trial")
    if times < 2:
        assert shown.run(calls.end_once, Limits(), folder=tmp_path, times=times) == "alive"
    else:
        with pytest.raises(CallEnded, match="was killed"):
            shown.run(calls.end_once, Limits(), folder=tmp_path, times=times)
    assert len(list(tmp_path.iterdir())) == min(times + 1, 2)
    assert shown.printed.data == b"attempt %d\n" % min(times + 1, 2)


@contextmanager
def killed_above(n_bytes: int, sandbox: Sandbox) -> Iterator[None]:
    """The kernel kills the process, or the test does where no memory group can be made."""
    group = Path(f"/sys/fs/cgroup/memory/prefect-tune-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(n_bytes))
        (group / "cgroup.procs").write_text(str(sandbox.tree.pid))
    except OSError:
        before = sandbox.tree.memory_above(0) or 0

        def kill_in_time() -> None:
            wait_for(lambda: sandbox.tree.last_bytes > before + n_bytes)
            kill(sandbox.tree.pid)

        killer = Thread(target=kill_in_time)
        killer.start()
        yield
        killer.join()
        return
    try:
        yield
    finally:
        sandbox.end()
        wait_for(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def test_a_kill_when_memory_is_short_is_told_as_such(sandbox) -> None:
    limits = Limits(memory_bytes=430 * 10**6 + sandbox.tree.memory_above(0))
    with killed_above(4 * 10**8, sandbox):
        how = ended(begun(sandbox, calls.take_memory, limits, n_bytes=42 * 10**7, in_child=False))
    assert how.kind == FailureKind.MEMORY
    assert how.may_repeat


@pytest.mark.parametrize("stopped", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_is_killed_or_stopped_as_it_starts_or_in_a_call_ends_its_call(
    sandboxes, tmp_path, stopped
) -> None:
    for is_in_call in (False, True):
        started = tmp_path / str(is_in_call)
        with sandboxes.taken(Caller()) as sandbox:
            call = begun(sandbox, calls.pause, Limits(2.0), seconds=1000, started=started)
            if is_in_call:
                wait_for(started.exists)
            os.kill(sandbox.tree.pid, stopped)
            how = ended(call)
        is_killed = stopped == signal.SIGKILL
        assert how.kind == (FailureKind.CRASHED if is_killed else FailureKind.TIMEOUT)
        assert how.may_repeat == is_killed


def test_an_idle_process_that_was_killed_is_replaced(sandboxes) -> None:
    before = next_pid(sandboxes)
    kill(before)
    wait_for(lambda: not is_alive(before))
    assert next_pid(sandboxes) != before


def test_a_copy_of_the_process_that_a_call_made_returns_nothing(sandboxes) -> None:
    with sandboxes.taken(Caller()) as sandbox:
        assert called(sandbox, calls.return_twice) == "process"


def test_a_killed_process_is_found_although_its_copy_has_its_files_open(sandbox) -> None:
    how = ended(begun(sandbox, calls.leave_copy_and_end))
    assert how.may_repeat


def test_a_step_that_closes_all_files_ends_its_process_alone(sandboxes) -> None:
    with sandboxes.taken(Caller()) as sandbox:
        how = ended(begun(sandbox, calls.close_files, Limits(20)))
    assert how.kind == FailureKind.CRASHED
    assert next_pid(sandboxes) != sandbox.tree.pid


def test_a_step_may_fork_180_processes_and_leaves_none(sandboxes, tmp_path) -> None:
    with sandboxes.taken(Caller()) as sandbox:
        assert called(sandbox, calls.fork_often, n=180, folder=tmp_path) == 180
    forked = [int(path.name) for path in tmp_path.iterdir()]
    assert len(forked) == 180
    wait_for(lambda: not any(map(is_alive, forked)), SOON)


@pytest.mark.parametrize("end_by", [0, signal.SIGKILL, signal.SIGSEGV])
def test_processes_that_a_call_has_started_end_with_it(sandbox, tmp_path, end_by) -> None:
    ended(begun(sandbox, calls.start_processes, Limits(5), folder=tmp_path, end_by=end_by))
    started = calls.started_in(tmp_path).values()
    assert len(started) == 4
    wait_for(lambda: not any(map(is_alive, started)), SOON)


def test_what_was_left_behind_ends_with_the_last_call(tmp_path) -> None:
    sandboxes = Sandboxes()
    with suppress(CallEnded), sandboxes.taken(Caller()) as sandbox:
        call = begun(sandbox, calls.start_processes, Limits(5), folder=tmp_path)
        wait_for((tmp_path / "all").exists)
        kill(sandbox.tree.pid)
        value_of(call)
    sandboxes.close()
    assert not any(map(is_alive, calls.started_in(tmp_path).values()))


@pytest.mark.skipif(sys.platform != "linux", reason="needs the list of open files")
def test_without_file_descriptors_no_process_starts_and_the_cause_is_told(
    sandboxes, monkeypatch
) -> None:
    import resource

    from prefect_tune.tasks.sandbox import sandbox

    sandboxes.close()
    monkeypatch.setattr(sandbox, "_START_SECONDS", 0.0)
    former = resource.getrlimit(resource.RLIMIT_NOFILE)
    n_open = max(int(p.name) for p in Path("/proc/self/fd").iterdir()) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (n_open, former[1]))
    filling = []
    try:
        with suppress(OSError):
            while True:
                filling.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(NoSandbox, match="ulimit -n"):
            next_pid(sandboxes)
    finally:
        for descriptor in filling:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, former)
    assert next_pid(sandboxes)
