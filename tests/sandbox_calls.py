"""Functions that are called in sandboxes, and who calls them."""

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

from prefect_tune.tasks.sandbox.child import StepBegun, StepDone, Waited, loading, report
from prefect_tune.tasks.sandbox.sandbox import Call, CallProgress, Limits, Sandbox

SLEEP = "import time; time.sleep(1000)"


class Caller:
    """Who waits for a call; `wants` of False cancels it."""

    def __init__(self) -> None:
        self.wants = True
        self.seen: list[Any] = []

    def is_unwanted(self) -> bool:
        return not self.wants

    def observe(self, seen: Any) -> None:
        is_at = isinstance(seen, CallProgress)
        self.seen.append((seen.step, seen.fold) if is_at else seen)


def begun(
    sandbox: Sandbox,
    function: Callable[..., Any],
    limits: Limits | None = None,
    caller: Caller | None = None,
    **arguments: Any,
) -> Call:
    """A call that runs."""
    return sandbox.call(function, arguments, limits or Limits(), caller or Caller())


def value_of(call: Call) -> Any:
    """The value of a call, after all its steps."""
    while call.next_step() is not None:
        call.step_done()
    return call.value()


def called(sandbox: Sandbox, function: Callable[..., Any], **arguments: Any) -> Any:
    """The value of a call."""
    return value_of(begun(sandbox, function, **arguments))


def place() -> dict[str, Any]:
    """Facts of the process that runs the call."""
    return {
        "pid": os.getpid(),
        "folder": str(Path.cwd()),
        "path": sys.path,
        "environment": dict(os.environ),
        "modules": {name.partition(".")[0] for name in sys.modules},
        "temporary": os.environ["TMPDIR"],
    }


def pause(seconds: float, started: Path | None = None) -> str:
    """Takes so many seconds."""
    if started is not None:
        started.touch()
    sleep(seconds)
    return "done"


def in_steps(names: list[str]) -> int:
    """Reports steps."""
    for name in names:
        report(StepBegun(name, "none", is_served=False))
        report(StepDone(("key",), 0))
    return len(names)


def slow_start(load_seconds: float, wait_seconds: float, seconds: float) -> str:
    """Loads data, waits for others and works."""
    with loading():
        sleep(load_seconds)
    report(Waited(0.0, monotonic()))
    sleep(wait_seconds)
    report(Waited(wait_seconds, None))
    sleep(seconds)
    return "done"


def hold_interpreter(seconds: int) -> None:
    """Lets no other thread of Python run."""
    ctypes.PyDLL(None).sleep(seconds)


class OwnError(Exception):
    """Of a module that the worker may not have."""


def raise_error(kind: type[BaseException]) -> None:
    """Fails."""
    raise kind("wrong")


def unsendable() -> object:
    """A value that cannot be pickled."""
    return threading.Lock()


def end(number: int) -> None:
    """The process ends by a signal, or by itself with a negative code."""
    if number < 0:
        os._exit(-number)
    os.kill(os.getpid(), number)
    sleep(10)


def end_once(context: object, folder: Path, times: int) -> str:  # noqa: ARG001 - as of trials
    """The process is killed so many times."""
    (folder / str(os.getpid())).touch()
    print("attempt", len(list(folder.iterdir())))
    if len(list(folder.iterdir())) <= times:
        sys.stdout.flush()
        end(signal.SIGKILL)
    return "alive"


def take_memory(n_bytes: int, in_child: bool, keep: bool = False) -> str:
    """Takes memory for a while, little by little."""
    if in_child and os.fork():
        os.wait()
        return "done"
    held = KEPT if keep else []
    for _ in range(n_bytes // 10**7):
        held.append(os.urandom(10**4) * 10**3)
        sleep(0.02)
    if not keep:
        sleep(1000)
    return "done"


KEPT: list[bytes] = []


def start_processes(folder: Path, end_by: int = 0) -> None:
    """Starts processes in all ways, and goes on for long, or ends by a signal."""
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
    while len(started_in(folder)) < 4:
        sleep(0.01)
    (folder / "all").touch()
    sleep(0.5)  # time to be seen
    if end_by:
        end(end_by)
    sleep(1000)


def started_in(folder: Path) -> dict[str, int]:
    """The ids of processes that `start_processes` has started."""
    return {p.suffix or p.name: int(p.stem) for p in folder.iterdir() if p.stem.isdigit()}


def fork_often(n: int, folder: Path) -> int:
    """Forks so many processes that stay."""
    for _ in range(n):
        if (pid := os.fork()) == 0:
            sleep(1000)
        (folder / str(pid)).touch()
    return n


def return_twice() -> str:
    """Returns in the process and in a copy of it."""
    if (pid := os.fork()) == 0:
        return "copy"
    os.waitpid(pid, 0)
    return "process"


def leave_copy_and_end() -> None:
    """A copy of the process stays, with all its files open."""
    if os.fork() == 0:
        sleep(1000)
    end(signal.SIGKILL)


def close_files() -> None:
    """Closes all files of the process."""
    os.closerange(3, 256)


def damage(what: str) -> str:
    """Changes its process."""
    DAMAGES[what]()
    return what


def _nothing(*_: object) -> None:
    sleep(1000)


def _open(n: int) -> None:
    OPEN.extend(os.fdopen(os.open(os.devnull, os.O_WRONLY), "w") for _ in range(n))


OPEN: list[Any] = []
DAMAGES: dict[str, Callable[[], Any]] = {
    "nothing": lambda: _open(5),
    "folder": lambda: os.chdir("/usr"),
    "environment": lambda: os.environ.update(OTHER="1"),
    "import path": lambda: sys.path.append("/usr"),
    "signals": lambda: signal.signal(signal.SIGTERM, _nothing),
    "limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)),
    "recursion": lambda: sys.setrecursionlimit(5_000),
    "closed": lambda: os.close(1),
    "closed in Python": sys.__stdout__.close,
    "replaced": lambda: (_open(1), setattr(sys, "stdout", OPEN[-1])),
    "files": lambda: _open(150),
    "thread": lambda: threading.Thread(target=_nothing, daemon=True).start(),
    "process": lambda: OPEN.append(subprocess.Popen([sys.executable, "-c", SLEEP])),
}


def print_by_all_ways(words: str) -> None:
    """Prints from Python, C and a child process."""
    print("python")
    print("python, without end", end="|", file=sys.stderr)
    ctypes.CDLL(None).printf(b"c, without end|")
    subprocess.run(["sh", "-c", "echo child; echo error of child >&2"], check=True)
    os.write(1, b"descriptor\n")
    print(words)
    warnings.warn("a warning", stacklevel=1)


def print_much(n_bytes: int) -> None:
    """Prints lines, and `end`."""
    block = b"".join(b"line %06d\n" % i for i in range(100_000))
    for _ in range(n_bytes // len(block)):
        os.write(1, block)
    print("end")
