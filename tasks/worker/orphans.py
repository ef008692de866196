"""Workers end with the process that started them, whatever they are doing.

Dask's workers watch their parent in a thread, which is blind while C code holds the interpreter's
lock. Linux sends a signal instead, when the *thread* ends that started the process. Any thread may
have started the process that workers are forked from, so that process checks for its parent itself,
adopts what dead workers leave, and ends it.

Where the system reports no parent's death (macOS), and for workers that others started, the parent
is the nanny's process. A small guard process then ends those workers. Their pids arrive on its
standard input; it acts when the input ends.
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
"""Of prctl(2)."""
_SIGNAL = signal.SIGUSR2
"""Tells the process that workers are forked from to look for its parent."""
_END_SECONDS = 5.0
"""How long its children may take to end."""
_OF_TERMINAL = (signal.SIGINT, signal.SIGHUP)
_FORK_SERVER: set[int] = set()
"""The process that this one was forked from, or is itself; empty if there is none."""


def dask_setup(worker: Any) -> None:  # noqa: ARG001 - Dask calls it with its worker
    """Tie a worker of this machine to its parent; called by Dask as the worker starts."""
    lead_group()
    if not _FORK_SERVER:
        return
    _control_process(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() not in _FORK_SERVER:  # it has ended before
        os.kill(os.getpid(), signal.SIGKILL)


def lead_group() -> None:
    """Make this process the leader of a process group of its own."""
    with suppress(PermissionError):  # it leads a session, and so a group
        os.setpgid(0, 0)


def is_fork_server() -> bool:
    """Return whether this process was started by `multiprocessing` to fork workers, on Linux."""
    is_named = any("multiprocessing.forkserver" in word for word in sys.orig_argv)
    # The words of a forked process are those of the one it was forked from.
    return sys.platform == "linux" and is_named and parent_process() is None


def tie_fork_server() -> None:
    """Tie this process, which workers are forked from, to its parent; called as it begins."""
    pid, parent = os.getpid(), os.getppid()

    def look(*_: object) -> None:
        if os.getpid() == pid and os.getppid() != parent:  # and not a thread of it
            _end_children()
            os._exit(1)

    for number in _OF_TERMINAL:  # the flow ends it; it may have been started from any thread
        signal.signal(number, signal.SIG_IGN)
    # Those whom it adopts end one day, too.
    warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")
    signal.signal(_SIGNAL, look)
    _control_process(_SET_CHILD_SUBREAPER, 1)
    _control_process(_SET_DEATH_SIGNAL, _SIGNAL)
    look()
    _FORK_SERVER.add(pid)


def _end_children() -> None:
    """Kill all children of this process, and theirs, which become its own as their parents end."""
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
    """Call prctl(2).

    Raises:
        OSError: If it fails.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(what, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


_LOOK_SECONDS = 0.1


class Guard:
    """The guard of this process's workers, which runs as long as somebody uses it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._n_users = 0
        self._watched: set[int] = set()
        self._process: subprocess.Popen[str] | None = None

    def enter(self) -> None:
        """Become a user."""
        with self._lock:
            self._n_users += 1

    def leave(self) -> None:
        """Stop being a user; the last one stops the guard, and workers stay."""
        with self._lock:
            self._n_users -= 1
            if self._n_users == 0:
                if self._process is not None:
                    self._process.communicate("".join(f"-{pid}\n" for pid in self._watched))
                self._watched.clear()
                self._process = None

    def watch(self, pid: int) -> None:
        """End a process and all below it when this process is killed."""
        with self._lock:
            self._watched.add(pid)
            self._tell(f"+{pid}")

    def forget(self, pid: int) -> None:
        """Leave a process alone from now on."""
        with self._lock:
            if pid in self._watched:
                self._watched.discard(pid)
                self._tell(f"-{pid}")

    def _tell(self, word: str) -> None:
        if self._process is None or self._process.poll() is not None:
            self._start()
            word = "\n".join(f"+{pid}" for pid in self._watched)
        assert self._process is not None and self._process.stdin is not None  # noqa: S101, PT018
        with suppress(OSError):  # it was killed just now, and starts again with the next word
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
"""That of this process."""


def main() -> None:
    """Guard the processes that standard input names until it ends or the parent does."""
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
                tree.look()
    for tree in trees.values():
        tree.end()


def _take(trees: dict[int, ProcessTree], word: str) -> None:
    """Begin to watch a process, or stop it."""
    pid = int(word[1:])
    trees.pop(pid, None)
    if word[0] == "+":
        with suppress(psutil.NoSuchProcess):
            trees[pid] = ProcessTree(pid)


if __name__ == "__main__":
    main()
