"""A process with all its descendants, to measure their memory and end them together."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

import psutil

_HAS_LISTS = Path(f"/proc/self/task/{os.getpid()}/children").exists()
"""Whether Linux lists the children of each thread, so that lookups are cheap."""
_LOOK_SECONDS = 1.0
"""Interval between lookups if they are expensive, because all processes are scanned."""
_SHARE_SECONDS = 0.5
"""Interval between measurements of shared memory, which scan all pages."""


class ProcessTree:
    """A root process, its descendants, and former descendants; may raise `NoSuchProcess`."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._below: dict[int, psutil.Process] = {}
        self._looked = self._shared = -float("inf")
        self._share_bytes = 0
        self.last_bytes = 0
        """Memory at the last measurement."""
        self.refresh()

    @property
    def pid(self) -> int:
        """Id of the root process."""
        return self._root.pid

    def has_ended(self) -> bool:
        """Return whether the root has ended, even if descendants are still running."""
        try:
            return self._root.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def refresh(self, *, at_once: bool = False) -> None:
        """Find the descendants of the root; `at_once` skips the pause between expensive lookups."""
        if not (_HAS_LISTS or at_once) and monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = monotonic()
        for pid in descendants(self.pid) if self._root.is_running() else ():
            if pid not in self._below or not self._below[pid].is_running():
                with suppress(psutil.NoSuchProcess):
                    self._below[pid] = psutil.Process(pid)
        self._below = {pid: p for pid, p in self._below.items() if p.is_running()}

    def memory_above(self, limit_bytes: int) -> int | None:
        """Return the tree's memory in bytes if above a limit; None otherwise."""
        sizes = [_asked(p, lambda p: p.memory_info().rss) for p in self._all()]
        resident = sum(sizes)
        if sizes[0]:  # the root is still running
            self.last_bytes = resident
        if resident <= limit_bytes:
            return None
        if not self._below:
            return resident
        if monotonic() - self._shared > _SHARE_SECONDS:
            self._share_bytes = sum(_asked(p, self._share) for p in self._all())
            self._shared = monotonic()
        return self._share_bytes if self._share_bytes > limit_bytes else None

    def end(self) -> None:
        """Kill all processes, including processes left by a root that has ended."""
        stopped: set[int] = set()  # a stopped process cannot start others
        while True:
            self._signal_group(signal.SIGSTOP)
            self.refresh(at_once=True)
            running = [p for p in self._all() if p.pid not in stopped]
            if not running:
                break
            for process in running:
                _asked(process, psutil.Process.suspend)
                stopped.add(process.pid)
        self._signal_group(signal.SIGKILL)
        for process in self._all():
            _asked(process, psutil.Process.kill)

    def _all(self) -> Iterator[psutil.Process]:
        yield self._root
        yield from self._below.values()

    def _share(self, process: psutil.Process) -> int:
        memory = process.memory_full_info()
        if hasattr(memory, "pss"):
            return int(memory.pss)
        return int(memory.rss if process is self._root else memory.uss)

    def _signal_group(self, which: signal.Signals) -> None:
        """Send a signal to the process group that the root leads, even after the root has ended."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, which)


def descendants(pid: int) -> list[int]:
    """Return the process ids of all descendants of a process."""
    if not _HAS_LISTS:
        try:
            return [p.pid for p in psutil.Process(pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
    found, waiting = [], [pid]
    while waiting:
        children = _listed_children(waiting.pop())
        found += children
        waiting += children
    return found


def kill_below(pid: int) -> bool:
    """Kill all descendants of a process; return whether there were any."""
    below = descendants(pid)
    for each in below:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)
    return bool(below)


def _listed_children(pid: int) -> list[int]:
    """Return the children of a process, which Linux lists by thread."""
    children: list[int] = []
    with suppress(OSError):  # the process or thread has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                children += map(int, (thread / "children").read_text().split())
    return children


def _asked(process: psutil.Process, ask: Callable[[psutil.Process], int | None]) -> int:
    try:
        return ask(process) or 0
    except psutil.Error:
        return 0
