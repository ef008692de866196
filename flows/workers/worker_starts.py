"""Starts of local workers: which fail, why, when to try again, and when to give up.

A worker that dies while it runs a trial has started: that death is the trial's matter.
"""

import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from multiprocessing import synchronize
from threading import Lock
from time import monotonic

from prefect_tune.flows.workers.roster import NoWorkers
from prefect_tune.flows.workers.scratch import scratch_folder
from prefect_tune.storage.privacy.masking import masked
from prefect_tune.tasks.worker.oom_kills import count_oom_kills
from prefect_tune.tasks.worker.start_log import log_text

__all__ = ["WorkerStarts"]

_MOST_SECONDS = 40.0
"""How long there may be no worker, from the first start that failed."""
_START_SECONDS = 45.0
"""Longest start of a worker, once one has been up."""
_FIRST_START_SECONDS = 120.0
"""The same before: libraries may come from a slow disk."""
_PROVEN_SECONDS = 5.0
"""A worker that lives that long, or begins a trial, has started."""
_FIRST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.1, 5.0
"""Between a failed start and the next one; the pause doubles with each failure."""
_NEAR_SECONDS = 5.0
"""Workers that die so soon after memory ran out have died of that."""
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
    ("SIGKILL", "Find what kills the workers, such as a limit on memory (see `dmesg`)"),
)
"""What helps, by a part of the cause."""
_OTHER_REMEDY = "Remove the cause"


@dataclass(slots=True)
class _State:
    """Starts of one nanny's workers.

    Attributes:
        up_since: Time since when its worker is up; None while there is none.
        failed_since: Begin of the first of the starts that failed in a row; None if none has.
        n_failed: Number of them.
    """

    up_since: float | None = None
    failed_since: float | None = None
    n_failed: int = 0


@dataclass
class WorkerStarts:
    """Starts of the workers of one local cluster; for all of its nannies, and any thread.

    Attributes:
        cause: Why the last start failed; empty if none has.
        n_server_deaths: Deaths of the process that workers are forked from.
        is_over: Whether no more workers are to be started.
    """

    cause: str = ""
    n_server_deaths: int = 0
    is_over: bool = False
    _states: dict[str, _State] = field(default_factory=dict)
    _has_started: bool = False
    _dead_servers: set[int] = field(default_factory=set)
    _n_oom_kills: int = field(default_factory=count_oom_kills)
    _out_of_memory_at: float = -inf
    _lock: Lock = field(default_factory=Lock)

    @property
    def most_start_seconds(self) -> float:
        """Longest time that a start may take."""
        return _START_SECONDS if self._has_started else _FIRST_START_SECONDS

    def note_up(self, nanny: str) -> None:
        """Note that a nanny's worker is up."""
        with self._lock:
            self._has_started = True
            self._states.setdefault(nanny, _State()).up_since = monotonic()

    def note_death(self, nanny: str, *, had_trial: bool) -> bool:
        """Note the death of a worker that was up; return whether that was a failed start."""
        with self._lock:
            state = self._states.setdefault(nanny, _State())
            lived, state.up_since = monotonic() - (state.up_since or 0.0), None
            if had_trial or lived >= _PROVEN_SECONDS:
                state.failed_since, state.n_failed = None, 0
                return False
        return True

    def note_failure(self, nanny: str, cause: str, since: float) -> float:
        """Note a failed start, and return the seconds until the next one.

        Args:
            nanny: Address of the nanny.
            cause: Why it failed, for a sentence about the worker.
            since: When the start began, by the monotonic clock.
        """
        with self._lock:
            self.cause = cause
            state = self._states.setdefault(nanny, _State())
            state.up_since = None
            state.failed_since = since if state.failed_since is None else state.failed_since
            state.n_failed += 1
            pause = _FIRST_PAUSE_SECONDS * 2.0 ** min(state.n_failed - 1, 10)
            return min(pause, _MOST_PAUSE_SECONDS)

    def note_server_death(self, pid: int) -> None:
        """Note that the process is dead that workers were forked from."""
        with self._lock:
            if pid not in self._dead_servers:
                self._dead_servers.add(pid)
                self.n_server_deaths += 1

    def is_hopeless(self, nanny: str | None = None) -> bool:
        """Return whether there has been no worker for long, though starts were tried.

        Args:
            nanny: Address of the nanny whose worker is meant; None for any worker.
        """
        with self._lock:
            states = [s for n, s in self._states.items() if nanny in (None, n)]
            since = [s.failed_since for s in states if s.up_since is None]
            if not since or len(since) < len(states):
                return False
            # One that has not failed is about to start.
            return all(s is not None and monotonic() - s > _MOST_SECONDS for s in since)

    def check(self, nanny: str | None = None) -> None:
        """Do nothing while there is hope for a worker.

        Args:
            nanny: Address of the nanny whose worker is meant; None for any worker.

        Raises:
            NoWorkers: If there has been none for long.
        """
        if self.is_hopeless(nanny):
            raise self.no_workers()

    def no_workers(self) -> NoWorkers:
        """Return the error that says why no worker could be started."""
        return NoWorkers(
            f"no worker could be started for {_MOST_SECONDS:g} s: the last one {self.cause}. "
            f"{_remedy(self.cause)}, then run the same command to continue"
        )

    def explain(self, exit_code: int | None, *, log_since: int | None = None) -> str:
        """Return how a worker ended, for a sentence about the worker.

        Args:
            exit_code: That of its process; negative for a signal, None if it is not known.
            log_since: Size of the log before the start; None if the worker was up.
        """
        how = "ended"
        if exit_code is not None and exit_code < 0:
            how = f"was killed by signal {-exit_code} ({_signal_name(-exit_code)})"
        elif exit_code not in (None, 255):  # Dask's word for an unknown one
            how = f"exited with code {exit_code}"
        if log_since is not None:
            how += " as it started"
        return self._with_traces(how, log_since)

    def explain_error(self, error: BaseException, log_since: int) -> str:
        """Return why a worker could not be started, likewise, by the error that this raised."""
        seen: BaseException | None = error
        while seen is not None and not isinstance(seen, OSError | EOFError):
            seen = seen.__cause__ or seen.__context__  # Dask stumbles over the process it lacks
        if isinstance(seen, EOFError | ConnectionError):
            return self._with_traces(_SERVER_ENDED, log_since)
        found = error if seen is None else seen
        how = f"could not be started: {type(found).__name__}: {found}"
        if any(frame.filename == synchronize.__file__ for frame in _frames(found)):
            how += f" ({_NEED_SHARED_MEMORY})"
        return self._with_traces(how, log_since)

    def _with_traces(self, how: str, log_since: int | None) -> str:
        """Add to how a worker ended whether memory ran out, and what it printed as it started."""
        if (n_oom_kills := count_oom_kills()) > self._n_oom_kills:
            self._n_oom_kills, self._out_of_memory_at = n_oom_kills, monotonic()
        if monotonic() - self._out_of_memory_at < _NEAR_SECONDS:
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
