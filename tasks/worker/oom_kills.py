"""Number of processes that Linux has killed because memory ran out.

Linux counts them for the whole machine and for each control group, for instance a container or
a batch job.
"""

from contextlib import suppress
from pathlib import Path

__all__ = ["count_oom_kills"]

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_MACHINE = Path("/proc/vmstat")


def count_oom_kills() -> int:
    """Return the number of processes killed so far; 0 if the system does not count them."""
    counts = [_count(path) for path in (_MACHINE, *_files_of_groups())]
    return max(counts)  # the machine's count includes those of groups, but may be hidden


def _files_of_groups() -> list[Path]:
    """Return the files with the counts of this process's control groups, of versions 1 and 2."""
    files = [_GROUPS / "memory.events", _GROUPS / "memory" / "memory.oom_control"]
    with suppress(OSError, ValueError):
        for line in _OWN_GROUPS.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                files.append(_GROUPS / path.lstrip("/") / "memory.events")
            elif controllers == "memory":
                files.append(_GROUPS / "memory" / path.lstrip("/") / "memory.oom_control")
    return files


def _count(path: Path) -> int:
    """Return the number after the word `oom_kill` in a file; 0 if the file lacks it."""
    with suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            word, _, number = line.partition(" ")
            if word == "oom_kill":
                return int(number)
    return 0
