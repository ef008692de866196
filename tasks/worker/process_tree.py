"""A process and all that it has started: counted together, and ended together."""

import os
import signal
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

import psutil

_HAS_LISTS = Path(f"/proc/self/task/{os.getpid()}/children").exists()
"""Whether each thread has the list of its children: then a look is cheap."""
_LOOK_SECONDS = 1.0
"""Between two looks where it is not: all processes of the machine are gone through."""
_SHARE_SECONDS = 0.5
"""Between two reckonings of shared memory: the system goes through all pages."""


class ProcessTree:
    """A process, those below it, and those that have once been seen there.

    One whose parent has ended is nobody's child any more, but is still known here. Processes are
    told apart though their numbers come again.

    Args:
        pid: The process at the root.

    Raises:
        psutil.NoSuchProcess: If there is none.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._below: dict[int, psutil.Process] = {}
        self._looked = self._shared = -float("inf")
        self._share_bytes = 0
        self.look()

    @property
    def pid(self) -> int:
        """The process at the root."""
        return self._root.pid

    def look(self, *, at_once: bool = False) -> None:
        """Find the processes below the root, and forget those that have ended.

        Args:
            at_once: Whether to look even where that is dear and was done a moment ago.
        """
        if not (_HAS_LISTS or at_once) and monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = monotonic()
        for pid in descendants(self.pid) if self._root.is_running() else ():
            if pid not in self._below or not self._below[pid].is_running():
                with suppress(psutil.NoSuchProcess):
                    self._below[pid] = psutil.Process(pid)
        self._below = {pid: p for pid, p in self._below.items() if p.is_running()}

    def bytes_above(self, limit_bytes: int) -> int | None:
        """Return the memory that the tree takes, if that is more than a limit.

        A process alone takes what is resident. Of several, a page that they share counts once.
        """
        resident = sum(_asked(p, lambda p: p.memory_info().rss) for p in self._all())
        if resident <= limit_bytes:
            return None
        if not self._below:
            return resident
        if monotonic() - self._shared > _SHARE_SECONDS:
            self._share_bytes = sum(_asked(p, self._share) for p in self._all())
            self._shared = monotonic()
        return self._share_bytes if self._share_bytes > limit_bytes else None

    def freeze(self) -> None:
        """Stop all its processes, and those that they start meanwhile."""
        stopped: set[int] = set()
        while True:
            self._signal_group(signal.SIGSTOP)
            self.look(at_once=True)
            running = [p for p in self._all() if p.pid not in stopped]
            if not running:
                return
            for process in running:
                _asked(process, psutil.Process.suspend)
                stopped.add(process.pid)

    def thaw(self) -> None:
        """Let all its processes go on."""
        self._signal_group(signal.SIGCONT)
        for process in self._all():
            _asked(process, psutil.Process.resume)

    def end(self) -> None:
        """Kill all its processes; where the root has ended, those that it has left."""
        self.freeze()
        self._signal_group(signal.SIGKILL)
        for process in self._all():
            _asked(process, psutil.Process.kill)

    def end_below(self, spared: Container[int]) -> None:
        """Kill what is below the root, but for some processes, and leave the root."""
        for pid, process in self._below.items():
            if pid not in spared:
                _asked(process, psutil.Process.kill)

    def _all(self) -> Iterator[psutil.Process]:
        yield self._root
        yield from self._below.values()

    def _share(self, process: psutil.Process) -> int:
        """Return the part of a process's memory that counts for it."""
        memory = process.memory_full_info()
        if hasattr(memory, "pss"):
            return int(memory.pss)
        return int(memory.rss if process is self._root else memory.uss)

    def _signal_group(self, which: signal.Signals) -> None:
        """Signal the group that the root leads, if it leads one, also where it has ended."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, which)


def descendants(pid: int) -> list[int]:
    """Return the processes below one."""
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


def _listed_children(pid: int) -> list[int]:
    """Return the children that Linux lists for the threads of a process."""
    children: list[int] = []
    with suppress(OSError):  # it has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                children += map(int, (thread / "children").read_text().split())
    return children


def _asked(process: psutil.Process, ask: Callable[[psutil.Process], int | None]) -> int:
    """Return the answer of a process, 0 if it has ended."""
    try:
        return ask(process) or 0
    except psutil.Error:
        return 0
