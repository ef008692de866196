"""Workers end with the process that started them, even in the middle of a task.

Dask's workers watch their parent in a thread, which stops while C code holds the interpreter's
lock. Linux instead signals the end of the *thread* that started a process. Because any thread may
have started the fork server, the fork server checks for its parent itself. It also ends processes
that dead workers leave.

On macOS, and for workers started by others, the parent is the nanny's process, and a small guard
process ends the workers. It reads their pids from standard input, and acts when the input ends.
"""

import ctypes
import os
import signal
import subprocess
import sys
import warnings
from contextlib import suppress
from multiprocessing import parent_process
from selectors import EVENT_READ, DefaultSelector
from threading import Lock
from time import monotonic, sleep
from typing import Any

import psutil

from prefect_tune.tasks.worker.process_tree import ProcessTree, descendants

_SET_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
"""Options of prctl(2)."""
_SIGNAL = signal.SIGUSR2
"""Makes the fork server check for its parent."""
_END_SECONDS = 5.0
"""Time limit for its children to end."""
_OF_TERMINAL = (signal.SIGINT, signal.SIGHUP)
_FORK_SERVER: set[int] = set()
"""The fork server that this process is or was forked from; empty if there is none."""


def dask_setup(worker: Any) -> None:  # noqa: ARG001 - Dask calls it with its worker
    """Tie a worker of this machine to its parent; called by Dask as the worker starts."""
    lead_group()
    if not _FORK_SERVER:
        return
    _control_process(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() not in _FORK_SERVER:  # the parent has already ended
        os.kill(os.getpid(), signal.SIGKILL)


def lead_group() -> None:
    """Make this process the leader of a process group of its own."""
    with suppress(PermissionError):  # it leads a session, and therefore a group
        os.setpgid(0, 0)


def is_fork_server() -> bool:
    """Return whether this process was started by `multiprocessing` to fork workers, on Linux."""
    is_named = any("multiprocessing.forkserver" in word for word in sys.orig_argv)
    # A forked process has the command line of its parent.
    return sys.platform == "linux" and is_named and parent_process() is None


def tie_fork_server() -> None:
    """Tie this process, the fork server, to its parent; called when it starts."""
    pid, parent = os.getpid(), os.getppid()

    def check_parent(*_: object) -> None:
        if os.getpid() == pid and os.getppid() != parent:  # the parent itself ended, not a thread
            _end_children()
            os._exit(1)

    for number in _OF_TERMINAL:  # the flow ends it; any thread may have started it
        signal.signal(number, signal.SIG_IGN)
    # The fork server does not know the process ids of adopted processes that end.
    warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")
    signal.signal(_SIGNAL, check_parent)
    _control_process(_SET_CHILD_SUBREAPER, 1)
    _control_process(_SET_DEATH_SIGNAL, _SIGNAL)
    check_parent()
    _FORK_SERVER.add(pid)


def _end_children() -> None:
    """Kill all children of this process, and their children, which it adopts when parents end."""
    until = monotonic() + _END_SECONDS
    while (children := descendants(os.getpid())) and monotonic() < until:
        for child in children:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        sleep(0.01)


def _control_process(what: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(what, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


_LOOK_SECONDS = 0.1


class Guard:
    """The guard of this process's workers, which runs while anything uses it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._n_users = 0
        self._watched: set[int] = set()
        self._process: subprocess.Popen[str] | None = None

    def enter(self) -> None:
        """Register a user."""
        with self._lock:
            self._n_users += 1

    def leave(self) -> None:
        """Unregister a user; the last one stops the guard, and workers stay."""
        with self._lock:
            self._n_users -= 1
            if self._n_users == 0:
                if self._process is not None:
                    self._process.communicate("".join(f"-{pid}\n" for pid in self._watched))
                self._watched.clear()
                self._process = None

    def watch(self, pid: int) -> None:
        """End a process and its descendants when this process is killed."""
        with self._lock:
            self._watched.add(pid)
            self._tell(f"+{pid}")

    def forget(self, pid: int) -> None:
        """Stop watching a process."""
        with self._lock:
            if pid in self._watched:
                self._watched.discard(pid)
                self._tell(f"-{pid}")

    def _tell(self, word: str) -> None:
        if self._process is None or self._process.poll() is not None:
            self._start()
            word = "\n".join(f"+{pid}" for pid in self._watched)
        assert self._process is not None and self._process.stdin is not None  # noqa: S101, PT018
        with suppress(OSError):  # it was just killed, and restarts with the next message
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()

    def _start(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )


GUARD = Guard()
"""Guard of this process."""


def main() -> None:
    """Guard the processes named on standard input until it ends or the parent does."""
    parent, trees, rest = os.getppid(), dict[int, ProcessTree](), b""
    with DefaultSelector() as selector:
        selector.register(sys.stdin, EVENT_READ)
        while os.getppid() == parent:
            if selector.select(_LOOK_SECONDS):
                if not (read := os.read(sys.stdin.fileno(), 4096)):
                    break
                *words, rest = (rest + read).split(b"\n")
                for word in words:
                    _take(trees, word.decode())
            for tree in trees.values():
                tree.refresh()
    for tree in trees.values():
        tree.end()


def _take(trees: dict[int, ProcessTree], word: str) -> None:
    pid = int(word[1:])
    trees.pop(pid, None)
    if word[0] == "+":
        with suppress(psutil.NoSuchProcess):
            trees[pid] = ProcessTree(pid)


if __name__ == "__main__":
    main()
