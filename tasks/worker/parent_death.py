"""Workers end with the process that started them, whatever they are doing.

Dask's workers watch their parent in a thread, which sees nothing while C code holds the
interpreter's lock. Linux sends a signal instead. It does so when the *thread* ends that started
the process, and any thread may have started the process that workers are forked from; so that one
looks whether its parent is still there. It adopts what dead workers leave, and ends all that.

Elsewhere, and for workers that others started, there is the `guard`.
"""

import ctypes
import os
import signal
import sys
import warnings
from contextlib import suppress
from multiprocessing import parent_process
from time import monotonic, sleep
from typing import Any

from prefect_tune.tasks.worker.process_tree import descendants

__all__ = ["dask_setup", "lead_group", "tie_fork_server"]

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


def tie_fork_server() -> bool:
    """Tie the process that workers are forked from to its parent; called as that one begins.

    Returns:
        Whether this is that process, and this is Linux.
    """
    is_fork_server = any("multiprocessing.forkserver" in word for word in sys.orig_argv)
    if sys.platform != "linux" or not is_fork_server or parent_process() is not None:
        return False  # the words of a forked process are those of the one it was forked from
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
    return True


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
