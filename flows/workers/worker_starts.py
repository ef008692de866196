"""Starts of local workers: which fail, why, when to retry, and when to give up.

Without any worker, a run ends within a minute of the first failed start. If a worker dies after it
has begun a trial, its start counts as successful and the death is charged to the trial. Linux
counts out-of-memory kills, on the machine and in each control group (a container, a batch job);
these counts show whether a worker was among the killed processes.
"""

import signal
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from multiprocessing import synchronize
from pathlib import Path
from threading import Lock
from time import monotonic

from prefect_tune.flows.workers.roster import NoWorkers
from prefect_tune.flows.workers.scratch import scratch_folder
from prefect_tune.storage.masking import masked
from prefect_tune.tasks.worker.start_log import log_text

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_MACHINE = Path("/proc/vmstat")


def count_oom_kills() -> int:
    """Return the number of out-of-memory kills so far; 0 if the system does not count them."""
    counts = [_count(path) for path in (_MACHINE, *_files_of_groups())]
    return max(counts)  # the machine's count includes all groups, but may be hidden


def _files_of_groups() -> list[Path]:
    """Return the files with the counts of this process's control groups, versions 1 and 2."""
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
    """Return the number after `oom_kill` in a file; 0 if missing."""
    with suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            word, _, number = line.partition(" ")
            if word == "oom_kill":
                return int(number)
    return 0


_MOST_SECONDS = 40.0
"""Longest time without a worker, counted from the beginning of the first failed start."""
_START_SECONDS = 45.0
"""Longest start of a worker once any worker has been up."""
_FIRST_START_SECONDS = 55.0
"""Longest start before any was up: the disk may be slow, but a useless run ends in a minute."""
_PROVEN_SECONDS = 5.0
"""Lifetime after which a start counts as successful, even if the worker has begun no trial."""
_FIRST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.1, 5.0
"""Shortest and longest pause after a failed start; the pause doubles with each failure."""
_NEAR_SECONDS = 5.0
"""Time after an out-of-memory kill in which the death of a worker is attributed to it."""
_OUT_OF_MEMORY = "the system reports that it killed a process as memory ran out"
_SERVER_ENDED = "was not forked, as the process that workers are forked from had ended"
_NEED_SHARED_MEMORY = "semaphores need /dev/shm"
_REMEDIES = (
    (_OUT_OF_MEMORY, "Use fewer --workers or free some memory"),
    ("Cannot allocate memory", "Use fewer --workers or free some memory"),
    ("MemoryError", "Use fewer --workers or free some memory"),
    ("Resource temporarily unavailable", "Use fewer --workers or raise `ulimit -u`"),
    ("can't start new thread", "Use fewer --workers or raise `ulimit -u`"),
    ("Too many open files", "Use fewer --workers or raise `ulimit -n`"),
    (_NEED_SHARED_MEMORY, "Make /dev/shm writable"),
    ("No space left on device", "Make room in the folder for temporary files, or set TMPDIR"),
    ("was not up after", "Find what delays the workers, such as a slow disk or a busy machine"),
    ("SIGKILL", "Find what kills the workers, such as a limit on memory (see `dmesg`)"),
)
"""Remedies, by a text that the cause contains; the first match counts."""
_OTHER_REMEDY = "Remove the cause"


@dataclass(slots=True)
class _State:
    """Starts of one nanny's workers."""

    up_since: float | None = None
    failed_since: float | None = None
    n_failed: int = 0


@dataclass
class WorkerStarts:
    """Starts of the workers of one local cluster. All nannies share it; it is thread-safe.

    Attributes:
        cause: Cause of the last failed start, as a predicate; empty before any failure.
    """

    clock: Callable[[], float] = monotonic
    cause: str = ""
    n_server_deaths: int = 0
    is_over: bool = False
    _states: dict[str, _State] = field(default_factory=dict)
    _has_started: bool = False
    _dead_servers: set[int] = field(default_factory=set)
    _n_oom_kills: int = field(default_factory=count_oom_kills)
    _out_of_memory_at: float = -inf
    _lock: Lock = field(default_factory=Lock)

    def start_seconds(self, nanny: str) -> float:
        """Return the time limit of the next start of a nanny's worker.

        Failed starts reduce the limit, so that together they take as long as one start. After
        `_MOST_SECONDS` of failures, the run has ended unless other workers are up, so the full
        limit applies again.
        """
        with self._lock:
            most = _START_SECONDS if self._has_started else _FIRST_START_SECONDS
            since = self._states.get(nanny, _State()).failed_since
            failing = 0.0 if since is None else self.clock() - since
            return most - failing if failing <= _MOST_SECONDS else most

    def note_up(self, nanny: str) -> None:
        """Record that the worker of a nanny is up."""
        with self._lock:
            self._has_started = True
            self._states.setdefault(nanny, _State()).up_since = self.clock()

    def note_death(self, nanny: str, *, had_trial: bool) -> bool:
        """Record the death of a worker that was up; return whether its start counts as failed."""
        with self._lock:
            state = self._states.setdefault(nanny, _State())
            lived, state.up_since = self.clock() - (state.up_since or 0.0), None
            if had_trial or lived >= _PROVEN_SECONDS:
                state.failed_since, state.n_failed = None, 0
                return False
        return True

    def note_failure(self, nanny: str, cause: str, since: float) -> float:
        """Record a failed start, with a predicate as its cause; return the seconds to pause."""
        with self._lock:
            self.cause = cause
            state = self._states.setdefault(nanny, _State())
            state.up_since = None
            state.failed_since = since if state.failed_since is None else state.failed_since
            state.n_failed += 1
            pause = _FIRST_PAUSE_SECONDS * 2.0 ** min(state.n_failed - 1, 10)
            return min(pause, _MOST_PAUSE_SECONDS)

    def note_server_death(self, pid: int) -> None:
        """Record the death of a fork server; several nannies may report the same one."""
        with self._lock:
            if pid not in self._dead_servers:
                self._dead_servers.add(pid)
                self.n_server_deaths += 1

    def is_hopeless(self, nanny: str | None = None) -> bool:
        """Return whether starts, of one nanny or all, have failed for too long to continue."""
        with self._lock:
            states = [s for n, s in self._states.items() if nanny in (None, n)]
            since = [s.failed_since for s in states if s.up_since is None]
            if not since or len(since) < len(states):
                return False
            # A nanny without a failed start is about to start its worker.
            return all(s is not None and self.clock() - s > _MOST_SECONDS for s in since)

    def check(self, nanny: str | None = None) -> None:
        """Raise `NoWorkers` if `is_hopeless`."""
        if self.is_hopeless(nanny):
            raise self.no_workers()

    def no_workers(self) -> NoWorkers:
        """Return the error that reports why no worker could be started."""
        with self._lock:
            since = [s.failed_since for s in self._states.values() if s.failed_since is not None]
            seconds = self.clock() - min(since, default=self.clock())
        return NoWorkers(
            f"no worker could be started for {seconds:.0f} s: the last one {self.cause}. "
            f"{_remedy(self.cause)}, then rerun the command to resume"
        )

    def explain(self, exit_code: int | None, *, log_since: int | None = None) -> str:
        """Return how a worker ended, as a predicate; `exit_code` is negative for a signal.

        `log_since` is the size of the log before the start; None if the worker was up.
        """
        how = "ended"
        if exit_code is not None and exit_code < 0:
            how = f"was killed by signal {-exit_code} ({_signal_name(-exit_code)})"
        elif exit_code not in (None, 255):  # Dask reports 255 if the code is unknown
            how = f"exited with code {exit_code}"
        if log_since is not None:
            how += " as it started"
        return self._with_traces(how, log_since)

    def explain_error(self, error: BaseException, log_since: int) -> str:
        """Return why a worker could not be started, as a predicate; arguments as in `explain`."""
        seen: BaseException | None = error
        while seen is not None and not isinstance(seen, OSError | EOFError):
            seen = seen.__cause__ or seen.__context__  # Dask's own errors hide the first one
        if isinstance(seen, EOFError | ConnectionError):
            return self._with_traces(_SERVER_ENDED, log_since)
        found = error if seen is None else seen
        how = f"could not be started: {type(found).__name__}: {found}"
        if any(frame.filename == synchronize.__file__ for frame in _frames(found)):
            how += f" ({_NEED_SHARED_MEMORY})"
        return self._with_traces(how, log_since)

    def _with_traces(self, how: str, log_since: int | None) -> str:
        """Append whether memory ran out and the last lines printed during the start."""
        if (n_oom_kills := count_oom_kills()) > self._n_oom_kills:
            self._n_oom_kills, self._out_of_memory_at = n_oom_kills, self.clock()
        if self.clock() - self._out_of_memory_at < _NEAR_SECONDS:
            how += f" ({_OUT_OF_MEMORY})"
        if log_since is not None and (text := log_text(scratch_folder(), log_since)):
            how += f", after it printed: {text}"
        return masked(how)


def _remedy(cause: str) -> str:
    return next((remedy for part, remedy in _REMEDIES if part in cause), _OTHER_REMEDY)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _frames(error: BaseException) -> Sequence[traceback.FrameSummary]:
    return traceback.extract_tb(error.__traceback__)
