"""When a process began, by a clock that nobody sets.

`psutil` reckons it from the wall clock, and so it moves with every correction of that.
"""

import os
import time
from pathlib import Path

import psutil

__all__ = ["process_age", "process_start"]

_PROC = Path("/proc")
_STARTTIME = 19
"""Place of `starttime` behind the name in parentheses; see proc(5)."""


def process_start(pid: int) -> float:
    """Return a number that no other process of this id has had since the machine was started.

    On Linux, clock ticks since the boot; elsewhere, what the system noted when the process began.

    Raises:
        psutil.NoSuchProcess: If there is none.
    """
    ticks = _ticks(pid)
    return psutil.Process(pid).create_time() if ticks is None else float(ticks)


def process_age(pid: int) -> float:
    """Return the seconds since a process began.

    Raises:
        psutil.NoSuchProcess: If there is none.
    """
    ticks = _ticks(pid)
    if ticks is None:
        return time.time() - psutil.Process(pid).create_time()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int | None:
    """Return the ticks from the boot to a process's start; None where there is no `/proc`."""
    if not (_PROC / "self" / "stat").exists():
        return None
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise psutil.NoSuchProcess(pid) from None
    return int(stat.rpartition(")")[2].split()[_STARTTIME])
