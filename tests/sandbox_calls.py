"""Functions that are called in sandboxes, and their callers."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from processes import wait_for

from prefect_tune.tasks.sandbox.child import StepBegun, StepDone, Waited, loading, report
from prefect_tune.tasks.sandbox.sandbox import Call, CallProgress, Limits, Sandbox
from prefect_tune.tasks.threads import THREAD_VARIABLES

SLEEP = "import time; time.sleep(1000)"


class Caller:
    """A caller that cancels the call once `wants` is False, and passes each progress to `act`."""

    def __init__(self, act: Callable[[CallProgress], object] = lambda _: None) -> None:
        self.wants, self._act = True, act

    def is_unwanted(self) -> bool:
        return not self.wants

    def observe(self, seen: Any) -> None:
        if isinstance(seen, CallProgress):
            self._act(seen)


def begun(
    sandbox: Sandbox,
    function: Callable[..., Any],
    limits: Limits | None = None,
    caller: Caller | None = None,
    **arguments: Any,
) -> Call:
    """Start a call."""
    return sandbox.call(function, arguments, limits or Limits(), caller or Caller())


def value_of(call: Call) -> Any:
    """Return the value of a call, after all its steps."""
    while call.next_step() is not None:
        call.step_done()
    return call.value()


def called(sandbox: Sandbox, function: Callable[..., Any], **arguments: Any) -> Any:
    """Return the value of a call."""
    return value_of(begun(sandbox, function, **arguments))


def place() -> dict[str, Any]:
    """Return facts about the process that runs the call."""
    return {
        "pid": os.getpid(),
        "folder": str(Path.cwd()),
        "path": sys.path,
        "environment": dict(os.environ),
        "modules": {name.partition(".")[0] for name in sys.modules},
        "has_one_thread_each": THREAD_VARIABLES.items() <= os.environ.items(),
    }


def pause(started: Path | None = None, until: Path | None = None) -> str:
    """Wait until a file exists; wait forever if no file is given."""
    if started is not None:
        started.touch()
    while until is None or not until.exists():
        sleep(0.02)
    return "done"


def in_steps(names: list[str]) -> int:
    """Report steps."""
    for name in names:
        report(StepBegun(name, "none", is_served=False))
        report(StepDone(("key",), 0))
    return len(names)


def load_and_wait(folder: Path) -> None:
    """Report two waits, each until the test has seen the report, and then work forever."""
    with loading():
        pause(until=folder / "loading")
    report(Waited(0.0, monotonic()))
    pause(until=folder / "waiting")
    report(Waited(5_000.0, None))
    pause()


def hold_interpreter() -> None:
    """Block all other Python threads."""
    ctypes.PyDLL(None).sleep(1000)


class OwnError(Exception):
    """An error of a module that the worker may not have."""


def raise_error(kind: type[BaseException] | None) -> object:
    """Fail, or return a value that cannot be pickled."""
    if kind is None:
        return threading.Lock()
    raise kind("wrong")


def end(number: int) -> None:
    """End the process by signal `number`, or with exit code -`number` if it is negative."""
    print("last words")
    if number < 0:
        os._exit(-number)
    os.kill(os.getpid(), number)
    pause()


def take_memory(n_bytes: int, in_child: bool = False, keep: bool = False) -> str:
    """Take memory and wait forever, or return without freeing the memory if `keep`."""
    if in_child and os.fork():
        os.wait()
    KEPT.append(os.urandom(10**4) * (n_bytes // 10**4))
    return "done" if keep else pause()


def share_memory(n_bytes: int, shared: Path) -> None:
    """Take memory, and share it with three other processes."""
    KEPT.append(os.urandom(10**4) * (n_bytes // 10**4))
    if os.fork() and os.fork() and os.fork():
        shared.touch()
    pause()


KEPT: list[bytes] = []


def start_processes(folder: Path) -> None:
    """Start processes in all ways, and wait."""
    for new_session in (False, True):
        child = subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=new_session)
        (folder / str(child.pid)).touch()
    for is_left in (False, True):  # the second ends, and its child is nobody's
        if os.fork() == 0:
            if is_left and os.fork():
                os._exit(0)
            os.setsid()
            (folder / f"{os.getpid()}{'.orphan' * is_left}").touch()
            sleep(1000)
    wait_for(lambda: len(started_in(folder)) == 4)
    (folder / "all").touch()
    sleep(1000)


def started_in(folder: Path) -> dict[str, int]:
    """Return the ids of processes started by `start_processes`."""
    return {p.suffix or p.name: int(p.stem) for p in folder.iterdir() if p.stem.isdigit()}


def return_twice() -> str:
    """Return twice: in the process, and in a copy of the process."""
    if (pid := os.fork()) == 0:
        return "copy"
    os.waitpid(pid, 0)
    return "process"


def leave_copy_and_end() -> None:
    """Leave a copy of the process, with all its files open."""
    if os.fork() == 0:
        sleep(1000)
    end(signal.SIGKILL)


def close_files() -> None:
    """Close all files of the process."""
    os.closerange(3, 256)


def damage(what: str) -> str:
    """Damage the process."""
    DAMAGES[what]()
    return what


def _open(n: int) -> None:
    OPEN.extend(os.fdopen(os.open(os.devnull, os.O_WRONLY), "w") for _ in range(n))


OPEN: list[Any] = []
DAMAGES: dict[str, Callable[[], Any]] = {
    "nothing": lambda: _open(5),
    "folder": lambda: os.chdir("/usr"),
    "environment": lambda: os.environ.update(OTHER="1"),
    "import path": lambda: sys.path.append("/usr"),
    "signals": lambda: signal.signal(signal.SIGTERM, pause),
    "limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)),
    "recursion": lambda: sys.setrecursionlimit(5_000),
    "closed": lambda: os.close(1),
    "replaced": lambda: (_open(1), setattr(sys, "stdout", OPEN[-1])),
    "files": lambda: _open(150),
    "thread": lambda: threading.Thread(target=pause, daemon=True).start(),
    "process": lambda: OPEN.append(subprocess.Popen([sys.executable, "-c", SLEEP])),
}


def print_by_all_ways(words: str) -> None:
    """Print from Python, C and a child process."""
    print("python")
    print("python, without end", end="|", file=sys.stderr)
    ctypes.CDLL(None).printf(b"c, without end|")
    subprocess.run(["sh", "-c", "echo child; echo error of child >&2"], check=True)
    os.write(1, b"descriptor\n")
    print(words)
    warnings.warn("a warning", stacklevel=1)


def print_until_cut() -> None:
    """Print many lines, wait until they are cut, and print `end`."""
    rest = b"".join(b"line %06d\n" % i for i in range(800_000))
    while rest:  # a signal can end a write early
        rest = rest[os.write(1, rest) :]
    wait_for(lambda: os.fstat(1).st_size == 0)
    print("end")
