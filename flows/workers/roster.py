"""The workers of an external scheduler: which have come, passed the checks, or left.

The scheduler is polled once a second. A restarted worker has another address but the same nanny, so
nannies identify workers here.
"""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic

import distributed

from prefect_tune.flows.workers.external_workers import WorkerCheck
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.bad_input import BadInput

_LOGGER = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_RETURN_SECONDS = 30.0
"""Time of absence after which a worker has left; a killed worker restarts sooner."""
_WAIT_SECONDS = 600.0
"""Longest wait for a worker if there is none."""
_AGAIN_SECONDS = 60.0
"""Interval after which a worker that failed a check is checked again."""


class NoWorkers(StoreLost):
    """No usable worker is left, or there has been none for a long time."""


@dataclass
class Roster:
    """The workers that may run a study's trials.

    Args:
        check: Check that each worker has to pass before its first trial.
        note: Called with notes for the user.

    Attributes:
        addresses: Nanny of each present usable worker, by address.
    """

    client: distributed.Client
    check: WorkerCheck
    note: Callable[[str], None]
    addresses: Mapping[str, str] = field(default_factory=dict)
    _seen: dict[str, float] = field(default_factory=dict)
    """Time at which each accepted nanny was last present."""
    _refused: set[str] = field(default_factory=set)
    """Nannies whose workers became unusable."""
    _unfit: dict[str, tuple[float, str]] = field(default_factory=dict)
    """Time and reason of each nanny's last failed check."""
    _checks: dict[str, tuple[str, Future[None]]] = field(default_factory=dict)
    """Address and running check, by nanny."""
    _checking: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(4, thread_name_prefix="checks of workers")
    )
    _lock: Lock = field(default_factory=Lock)
    _looked: float = -float("inf")
    _alone_since: float | None = None

    @property
    def n_workers(self) -> int:
        """Number of usable workers, including those about to return."""
        return len(self._seen)

    @property
    def is_short(self) -> bool:
        """Whether a worker is about to return."""
        return len(self.addresses) < len(self._seen)

    def check_all(self) -> None:
        """Check the workers that are present; raise `BadInput` if one cannot be used."""
        for address, nanny in self.check.all_at_once(self.client).items():
            self._seen[nanny] = monotonic()
            self.addresses = {**self.addresses, address: nanny}

    def look(self) -> None:
        """Update the roster if the last update was some time ago.

        Raises `NoWorkers` if there has been no worker for a long time.
        """
        now = monotonic()
        with self._lock:  # pools of several threads share it
            if now - self._looked < (_LOOK_SECONDS / 10 if self.is_short else _LOOK_SECONDS):
                return
            self._looked = now
            self._look(now)

    def expects(self, nanny: str) -> bool:
        """Return whether a nanny's worker is usable and present or about to return."""
        return nanny in self._seen

    def refuse(self, address: str) -> int:
        """Stop using a worker and its nanny; return how many workers are left."""
        with self._lock:
            nanny = self.addresses.get(address)
            if nanny is not None:
                self._refused.add(nanny)
                self._seen.pop(nanny, None)
                self.addresses = {a: n for a, n in self.addresses.items() if n != nanny}
            return len(self._seen)

    def close(self) -> None:
        """Start no more checks."""
        self._checking.shutdown(wait=False, cancel_futures=True)

    def _look(self, now: float) -> None:
        self._settle_checks()
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        here = {address: worker.get("nanny") or address for address, worker in workers.items()}
        self.addresses = {a: nanny for a, nanny in here.items() if nanny in self._seen}
        self._seen |= dict.fromkeys(self.addresses.values(), now)
        left = [nanny for nanny, seen in self._seen.items() if now - seen > _RETURN_SECONDS]
        for nanny in left:
            del self._seen[nanny]
        if left:
            self.note(f"{_workers(len(left))} left; {self.n_workers} remaining")
        for address, nanny in here.items():
            if nanny not in self._seen and self._may_check(nanny, now):
                check = self._checking.submit(self.check, self.client, address)
                self._checks[nanny] = (address, check)
        self._wait_for_somebody(now)

    def _may_check(self, nanny: str, now: float) -> bool:
        if nanny in self._refused or nanny in self._checks:
            return False
        return nanny not in self._unfit or now - self._unfit[nanny][0] > _AGAIN_SECONDS

    def _settle_checks(self) -> None:
        for nanny, (address, check) in list(self._checks.items()):
            if not check.done():
                continue
            del self._checks[nanny]
            try:
                check.result()
            except BadInput as error:
                _, known = self._unfit.get(nanny, (0.0, ""))
                self._unfit[nanny] = (monotonic(), str(error))
                if str(error) != known:
                    self.note(f"{error}; the worker is not used")
            except Exception as error:  # it has left, or will be checked again
                _LOGGER.info(f"worker {address} could not be checked: {error}")
            else:
                self._unfit.pop(nanny, None)
                self._seen[nanny] = monotonic()
                self.note(f"worker {address} joined; {_workers(self.n_workers)} in total")

    def _wait_for_somebody(self, now: float) -> None:
        if self.addresses:
            self._alone_since = None
            return
        if self._alone_since is None:
            self._alone_since = now
            self.note(f"waiting for a worker: {self.check.scheduler} has none for the study")
        elif now - self._alone_since > _WAIT_SECONDS:
            raise NoWorkers(
                f"{self.check.scheduler} has had no worker for the study for "
                f"{_WAIT_SECONDS / 60:g} min; start some with `dask worker` and rerun the command "
                "to resume the study"
            )


def _workers(n: int) -> str:
    return f"{n} worker{'s' * (n != 1)}"
