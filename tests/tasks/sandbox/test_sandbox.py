"""Calls in sandboxes: values, limits, deaths, and replaced processes."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import sandbox_calls as calls
from processes import is_alive, kill, wait_for
from sandbox_calls import Caller, begun, called, value_of

from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.sandbox import process_tree
from prefect_tune.tasks.sandbox import sandbox as module
from prefect_tune.tasks.sandbox.sandbox import (
    CallEnded,
    CallProgress,
    Limits,
    Sandbox,
    Sandboxes,
)

pytestmark = pytest.mark.slow


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
    """Return the id of the process of the next call."""
    with sandboxes.taken(Caller()) as sandbox:
        return int(called(sandbox, calls.place)["pid"])


def ended(call: Any) -> CallEnded:
    """Return the exception of a call that ends without a value."""
    with pytest.raises(CallEnded) as raised:
        value_of(call)
    return raised.value


def test_process_serves_several_calls_without_importing_prefect_and_dask(sandboxes) -> None:
    with sandboxes.taken(Caller()) as sandbox:
        here = called(sandbox, calls.place)
        assert here["modules"].isdisjoint({"prefect", "prefect_dask", "dask", "distributed"})
        call = begun(sandbox, calls.in_steps, names=["impute", "fit model"])
        for name in ("impute", "fit model"):
            step = call.next_step()
            assert step is not None
            assert (step.step, call.step_done().keys) == (name, ("key",))
        assert call.next_step() is None
        assert call.value() == 2
        assert called(sandbox, calls.return_twice) == "process"  # and no copy that a call makes
    assert next_pid(sandboxes) == here["pid"] != os.getpid()


def test_new_process_has_the_environment_of_the_worker(tmp_path, monkeypatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.setenv("ONLY_NOW", "x" * 100_000)
    monkeypatch.syspath_prepend(tmp_path)
    for folder, expected in ((tmp_path, tmp_path), (gone, Path("/"))):
        monkeypatch.chdir(folder)
        if folder == gone:
            gone.rmdir()
        sandbox = Sandbox()
        here = called(sandbox, calls.place)
        sandbox.end()
        assert here["folder"] == str(expected)
        assert str(tmp_path) in here["path"]
        assert here["environment"]["ONLY_NOW"] == "x" * 100_000
        assert here["has_one_thread_each"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (BadInput, BadInput),
        (calls.OwnError, RuntimeError),
        (SystemExit, RuntimeError),
        (None, RuntimeError),  # no error, but a value that cannot be sent
    ],
)
def test_error_of_a_call_is_raised_and_the_process_is_replaced(sandboxes, kind, expected) -> None:
    before = next_pid(sandboxes)
    with pytest.raises(expected, match=r"wrong|lock"), sandboxes.taken(Caller()) as sandbox:
        called(sandbox, calls.raise_error, kind=kind)
    assert next_pid(sandboxes) != before


def test_timed_out_call_ends_even_while_holding_the_interpreter_lock(sandbox) -> None:
    how = ended(begun(sandbox, calls.hold_interpreter, Limits(0.2, remedy="use less")))
    assert (how.kind, how.may_repeat) == (FailureKind.TIMEOUT, False)
    assert "use less" in str(how)
    assert how.at.seconds() > 0.2
    assert not is_alive(sandbox.tree.pid)


def test_loading_and_waiting_do_not_count_as_time_of_a_call(sandbox, monkeypatch, tmp_path) -> None:
    """The clock advances by 500 s in each phase; the call may take 400 s."""
    passed, seen = [0.0], []
    monkeypatch.setattr(module, "monotonic", lambda: monotonic() + passed[0])

    def look(at: CallProgress) -> None:
        waits = at.waits.since is not None
        phase = "loading" if at.is_loading else "waiting" if waits else "working"
        if phase in seen if phase != "working" else "waiting" not in seen:
            return
        seen.append(phase)
        passed[0] += 500.0
        (tmp_path / phase).touch()

    call = begun(sandbox, calls.load_and_wait, Limits(400.0), Caller(look), folder=tmp_path)
    assert ended(call).kind == FailureKind.TIMEOUT
    assert seen[:3] == ["loading", "waiting", "working"]


def memory_of(sandbox: Sandbox) -> int:
    return sandbox.tree.memory_above(0) or 0


def test_memory_of_a_call_and_child_processes_is_limited(sandbox) -> None:
    limits = Limits(memory_bytes=memory_of(sandbox) + 2 * 10**8)
    how = ended(begun(sandbox, calls.take_memory, limits, n_bytes=4 * 10**8, in_child=True))
    assert how.kind == FailureKind.MEMORY
    assert "--trial-memory" in str(how)


def test_shared_memory_counts_once(sandbox, tmp_path) -> None:
    looks, limits = [], Limits(memory_bytes=2 * memory_of(sandbox) + 3 * 10**8)

    def end_after_a_look(_: CallProgress) -> None:
        caller.wants = sum(looks) < 2
        looks.append((tmp_path / "shared").exists())

    caller, arguments = Caller(end_after_a_look), {"shared": tmp_path / "shared"}
    call = begun(sandbox, calls.share_memory, limits, caller, n_bytes=2 * 10**8, **arguments)
    assert ended(call).kind is None


def test_process_that_does_not_free_memory_is_replaced(sandboxes) -> None:
    before = next_pid(sandboxes)
    for n_bytes, is_kept in ((10**7, True), (3 * 10**8, False)):
        with sandboxes.taken(Caller()) as sandbox:
            limits = Limits(memory_bytes=2 * memory_of(sandbox) + 4 * 10**8)
            arguments = {"n_bytes": n_bytes, "keep": True}
            assert value_of(begun(sandbox, calls.take_memory, limits, **arguments)) == "done"
        assert (next_pid(sandboxes) == before) == is_kept


def test_kill_near_the_memory_limit_is_reported_as_out_of_memory(sandbox) -> None:
    limit_bytes = 2 * memory_of(sandbox) + 10**8

    def kill_near_the_limit(_: CallProgress) -> None:
        if sandbox.tree.last_bytes > 0.9 * limit_bytes:
            kill(sandbox.tree.pid)

    n_bytes = int(0.95 * limit_bytes) - memory_of(sandbox)
    caller, limits = Caller(kill_near_the_limit), Limits(memory_bytes=limit_bytes)
    how = ended(begun(sandbox, calls.take_memory, limits, caller, n_bytes=n_bytes))
    assert (how.kind, how.may_repeat) == (FailureKind.MEMORY, True)


def test_canceled_call_is_ended(sandbox, tmp_path) -> None:
    caller = Caller()
    call = begun(sandbox, calls.pause, None, caller, started=tmp_path / "started")
    wait_for((tmp_path / "started").exists)
    caller.wants = False
    assert ended(call).kind is None
    assert not is_alive(sandbox.tree.pid)


def test_interrupted_worker_leaves_no_running_call(sandboxes) -> None:
    with suppress(KeyboardInterrupt), sandboxes.taken(Caller()) as sandbox:
        begun(sandbox, calls.pause)
        raise KeyboardInterrupt
    assert not is_alive(sandbox.tree.pid)


@pytest.mark.parametrize("what", calls.DAMAGES)
def test_only_a_damaged_process_is_replaced(sandboxes, what) -> None:
    before = next_pid(sandboxes)
    with sandboxes.taken(Caller()) as sandbox:
        assert called(sandbox, calls.damage, what=what) == what
    assert (next_pid(sandboxes) == before) == (what == "nothing")


@pytest.mark.parametrize(
    ("function", "arguments", "text", "may_repeat"),
    [
        (calls.end, {"number": signal.SIGKILL}, "was killed", True),
        (calls.end, {"number": signal.SIGSEGV}, "SIGSEGV", False),
        (calls.end, {"number": -3}, "exited with code 3", False),
        (calls.leave_copy_and_end, {}, "was killed", True),
        (calls.close_files, {}, "lost the connection", False),
    ],
)
def test_death_of_a_process_is_reported_with_output_and_the_next_call_runs(
    sandboxes, function, arguments, text, may_repeat
) -> None:
    with sandboxes.taken(Caller()) as sandbox:
        how = ended(begun(sandbox, function, **arguments))
        said = b"" if function == calls.close_files else b"last words\n"
        assert sandbox.output.printed([]).data == said
    assert text in str(how)
    assert (how.kind, how.may_repeat) == (FailureKind.CRASHED, may_repeat)
    assert next_pid(sandboxes) != sandbox.tree.pid


def test_killed_idle_process_is_replaced(sandboxes) -> None:
    before = next_pid(sandboxes)
    kill(before)
    wait_for(lambda: not is_alive(before))
    assert next_pid(sandboxes) != before


@pytest.mark.parametrize(
    ("is_killed", "has_lists"),
    [(False, True), (True, True), pytest.param(False, False, marks=pytest.mark.full)],
)
def test_processes_started_by_a_call_end_with_the_call(
    sandbox, tmp_path, monkeypatch, is_killed, has_lists
) -> None:
    looks = []
    if not has_lists:  # the system lists no children
        monkeypatch.setattr(process_tree, "_HAS_LISTS", False)

    def end_when_all_were_seen(_: CallProgress) -> None:
        looks.append((tmp_path / "all").exists())
        if sum(looks) == 2 and is_killed:
            kill(sandbox.tree.pid)
        caller.wants = is_killed or sum(looks) < 2

    caller = Caller(end_when_all_were_seen)
    ended(begun(sandbox, calls.start_processes, None, caller, folder=tmp_path))
    started = calls.started_in(tmp_path).values()
    assert len(started) == 4
    wait_for(lambda: not any(map(is_alive, started)))


def test_orphaned_processes_end_when_the_sandboxes_close(tmp_path) -> None:
    sandboxes = Sandboxes()
    with suppress(CallEnded), sandboxes.taken(Caller()) as sandbox:
        call = begun(sandbox, calls.start_processes, folder=tmp_path)
        wait_for((tmp_path / "all").exists)
        kill(sandbox.tree.pid)
        value_of(call)
    sandboxes.close()
    assert not any(map(is_alive, calls.started_in(tmp_path).values()))
