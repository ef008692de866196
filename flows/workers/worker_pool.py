"""The Dask workers available to our tasks: present and not about to go.

A worker that dies or is killed loses its task and restarts within a moment. Until the worker
returns, an extra task would queue on another worker and be lost with it. On an external scheduler,
each task is bound to one worker, because Dask would otherwise restart the task of a dead worker on
another one, up to three times.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import Any
from uuid import UUID

import distributed
from prefect_dask.task_runners import PrefectDaskFuture

from prefect_tune.flows.interrupts import check_interrupted
from prefect_tune.flows.workers.fork_server import end_stopped_fork_server
from prefect_tune.flows.workers.roster import NoWorkers, Roster
from prefect_tune.flows.workers.worker_starts import WorkerStarts
from prefect_tune.tasks.worker.dask_runner import LeanDaskTaskRunner, drain_worker, end_worker
from prefect_tune.tasks.worker.printed_output import NOTHING, Printed, take_printed

_LEAVE_SECONDS = 1.0
"""Wait for the scheduler to notice that a worker is gone."""
_RETURN_SECONDS = 60.0
"""Wait for dead workers to return."""
_TICK_SECONDS = 0.02
_SOON_SECONDS = 2.0
"""Time after which a missing worker is looked for less often."""
_EMPTY_SECONDS = 5.0
"""Time without a local worker after which the fork server is checked."""
_AWAITED_SECONDS = 30.0
"""Time a task waits for a worker about to return before it queues elsewhere."""
_FREE_SECONDS = 0.5
"""Interval between checks for a free worker."""


class WorkerPool:
    """Workers for as many concurrent tasks as there are slots.

    Args:
        n_slots: Maximum concurrent tasks.
        nanny: Address of the nanny whose worker is used exclusively; None for any worker.
        leaving: Addresses of workers about to go, shared by the pools of one runner.
        benched: Nannies whose workers are no longer used, also shared by these pools.
        roster: Usable workers of an external scheduler; None if all workers are usable.
        starts: Starts of local workers; None for external workers.
    """

    def __init__(
        self,
        runner: LeanDaskTaskRunner,
        n_slots: float,
        *,
        nanny: str | None = None,
        leaving: set[str] | None = None,
        benched: set[str] | None = None,
        roster: Roster | None = None,
        starts: WorkerStarts | None = None,
    ) -> None:
        self._most, self._roster, self._starts = n_slots, roster, starts
        self._runner, self._nanny = runner, nanny
        self._leaving = set() if leaving is None else leaving
        self._addresses: list[str] = []
        self._benched = set() if benched is None else benched
        self._is_short = nanny is not None or roster is not None  # until the workers are known
        self._free_nannies: SimpleQueue[str] = SimpleQueue()
        self._handed_out: frozenset[str] = frozenset()
        self._placed: dict[PrefectDaskFuture[Any], str] = {}
        self._short_since: float | None = None
        self._empty_since: float | None = None

    @property
    def client(self) -> distributed.Client:
        """Client of the scheduler."""
        return self._runner.client

    @property
    def n_slots(self) -> int:
        """Concurrent tasks."""
        if self._roster is None or self._nanny is not None:
            return int(self._most)
        return int(min(self._roster.n_workers, self._most))

    @property
    def is_short(self) -> bool:
        """Whether there were fewer workers than slots at the last count."""
        return self._is_short

    def count_slots(self) -> int:
        """Count the tasks that can run now; `NoWorkers` after a long time without a worker."""
        if self._roster is not None:
            self._roster.look()
            if self._nanny is not None and not self._roster.expects(self._nanny):
                self._benched.add(self._nanny)
                raise NoWorkers("its worker left")
        elif not self._is_short:
            return self.n_slots
        self._addresses = self._find_workers()
        n_slots = min(len(self._addresses), self.n_slots)
        self._is_short = n_slots < self.n_slots or n_slots == 0
        if n_slots == 0:
            self.check()
            self._check_fork_server()
        else:
            self._empty_since = None
        return n_slots

    def check(self) -> None:
        """Raise `NoWorkers` if there has been no local worker for a long time."""
        if self._starts is None:
            return
        self._starts.check()
        if self._nanny is not None and self._starts.is_hopeless(self._nanny):
            self._benched.add(self._nanny)
            self._starts.check(self._nanny)

    def _check_fork_server(self) -> None:
        """Kill the fork server if it is stopped and no worker comes up."""
        if self._starts is None:
            return
        now = monotonic()
        self._empty_since = now if self._empty_since is None else self._empty_since
        if now - self._empty_since > _EMPTY_SECONDS:
            self._empty_since = None
            end_stopped_fork_server()

    @property
    def n_server_deaths(self) -> int:
        """Deaths of the fork server, each with all of its workers."""
        return 0 if self._starts is None else self._starts.n_server_deaths

    @property
    def look_seconds(self) -> float:
        """Seconds between two checks for a returning worker, longer as time passes."""
        if not self._is_short:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = monotonic()
        waited = 0.0 if self._short_since is None else monotonic() - self._short_since
        return _TICK_SECONDS if waited < _SOON_SECONDS else _FREE_SECONDS

    def submit(
        self, task: Any, parameters: Mapping[str, Any], preferred: str | None = None
    ) -> PrefectDaskFuture[Any]:
        """Submit one run of a Prefect task, to the `preferred` worker address if it is free."""
        if self._roster is not None:
            return self._submit_to_one(task, parameters, preferred)
        if self._nanny is not None or self._benched:
            return self._runner.submit_lean(task, parameters, self._addresses)
        if preferred is None or not self._is_free(preferred):
            return self._runner.submit_lean(task, parameters)
        return self._runner.submit_lean(task, parameters, [preferred], allow_other_workers=True)

    def cancel_stranded(self, future: PrefectDaskFuture[Any]) -> None:
        """Cancel a task whose only worker is gone; Dask would wait for the worker for ever."""
        if self._roster is not None:
            self._roster.look()
            is_stranded = self._placed.get(future) not in self._roster.addresses
        else:
            is_stranded = self._nanny is not None and not (
                set(self._addresses) & set(self._find_workers())
            )
        if is_stranded:
            future.wrapped_future.cancel(force=True)

    def end(self, futures: Sequence[PrefectDaskFuture[Any]]) -> None:
        """Kill tasks together with their processes."""
        client = self._runner.client
        keys = {future.wrapped_future.key for future in futures}
        busy = [address for address, theirs in client.processing().items() if keys & set(theirs)]
        self._leaving.update(busy)
        self._is_short = True
        client.cancel([future.wrapped_future for future in futures], force=True)
        for address in busy:
            client.run(end_worker, address, workers=[address], nanny=True, on_error="ignore")

    def note_death(self, address: str | None = None) -> None:
        """Record that a worker, if known, is gone, and wait until the scheduler knows."""
        self._is_short = True
        if address is None:
            return
        self._leaving.add(address)
        until = monotonic() + _LEAVE_SECONDS
        # Until then, the scheduler would send the next task there.
        while address in self._runner.client.processing() and monotonic() < until:
            sleep(_TICK_SECONDS)

    def take_printed(self, nanny: str, task_run_id: UUID) -> Printed:
        """Return the output of a trial whose worker is gone, given the worker's nanny."""
        # The scheduler accepts the address of a nanny in place of a worker's.
        answers = self._runner.client.run(
            take_printed, str(task_run_id), workers=[nanny], on_error="ignore"
        )
        return answers.get(nanny, NOTHING)

    def bench(self, address: str) -> int:
        """Stop using a worker and its nanny; return how many workers are left."""
        self._is_short = True
        if self._roster is not None and self._nanny is None:
            return self._roster.refuse(address)
        worker = self._describe_workers().get(address)
        if worker is not None and worker["nanny"] not in self._benched:
            self._benched.add(worker["nanny"])
            self._most -= 1  # even while others are about to return
        return int(self._most)

    def wait_for_worker(self, check: Callable[[], None]) -> None:
        """Wait until a new task would go to a worker that stays; `check` may raise to stop.

        Raises `NoWorkers` if no worker returns, on an external scheduler after a long time.
        """
        until = monotonic() + _RETURN_SECONDS
        while self._is_short:
            # If any worker can be used, the task could go to one that is leaving.
            is_chosen = self._nanny is not None or self._roster is not None
            if self.count_slots() > 0 and (is_chosen or not self._leaving):
                return
            if monotonic() > until and self._roster is None:
                raise NoWorkers(f"no worker came back within {_RETURN_SECONDS:g} s")
            check()
            check_interrupted()
            sleep(self.look_seconds)

    def wait_for_all(self, seconds: float) -> None:
        """Wait until all local workers are up; after `seconds`, until at least one is up.

        Raises `NoWorkers` if no worker has been up for a long time.
        """
        until = monotonic() + seconds
        self._is_short = True
        while self._is_short and not (self.count_slots() and monotonic() > until):
            check_interrupted()
            sleep(self.look_seconds)

    def prepare(self, make_ready: Callable[[], None]) -> None:
        """Call a function on each worker once, and allow `reserved` to assign the workers.

        Raises `NoWorkers` if no worker has been up for a long time.
        """
        self.wait_for_all(_RETURN_SECONDS)  # an earlier flow may have killed some
        nannies = self._find_nannies()
        self._runner.prepare_workers(make_ready, list(nannies))
        self._handed_out = frozenset(sorted(set(nannies.values()))[: self.n_slots])
        for nanny in sorted(self._handed_out):
            self._free_nannies.put(nanny)

    @property
    def n_reserved(self) -> int:
        """Workers that `reserved` can provide, now or later."""
        return len(self._handed_out - self._benched)

    @contextmanager
    def reserved(self) -> Iterator["WorkerPool"]:
        """Yield a pool with exclusive use of one worker; wait for a free one.

        Call it after `prepare`, in any thread. Other pools do not notice the death of its worker.
        Raises `NoWorkers` if all workers have been benched.
        """
        nanny = self._free_nanny()
        try:
            yield WorkerPool(
                self._runner,
                1,
                nanny=nanny,
                leaving=self._leaving,
                benched=self._benched,
                roster=self._roster,
                starts=self._starts,
            )
        finally:
            if nanny not in self._benched:
                self._free_nannies.put(nanny)

    def _free_nanny(self) -> str:
        while self.n_reserved:
            with suppress(Empty):
                return self._free_nannies.get(timeout=_FREE_SECONDS)
        raise NoWorkers("no usable worker is left")

    def drain(self) -> None:
        """Let the workers send their remaining events to the Prefect server."""
        with suppress(KeyError):  # a worker left meanwhile, and Dask looks it up
            self._runner.client.run(drain_worker, on_error="ignore")

    def _is_free(self, address: str) -> bool:
        """Return whether a worker is present, staying and idle; else Dask would queue the task."""
        running = self._runner.client.processing().get(address)
        return running is not None and not running and address not in self._leaving

    def _submit_to_one(
        self, task: Any, parameters: Mapping[str, Any], preferred: str | None
    ) -> PrefectDaskFuture[Any]:
        """Submit a task to the preferred free worker, or the least busy one.

        If a worker is about to return and the others are busy with external work, wait for it for a
        while.
        """
        assert self._roster is not None  # noqa: S101 - else any worker may run it
        until = monotonic() + _AWAITED_SECONDS
        while True:
            placed = self._placed.items()
            self._placed = {f: a for f, a in placed if not f.wrapped_future.done()}
            ours = set(self._placed.values())
            processing = self._runner.client.processing()
            there = [a for a in self._find_workers() if a in processing]
            free = [a for a in there if a not in ours] or there
            is_one_awaited = self._nanny is None and (self._roster.is_short or self._leaving)
            is_any_idle = not all(processing[a] for a in free)
            if is_any_idle or not is_one_awaited or monotonic() > until:
                break
            sleep(_TICK_SECONDS)
            self._roster.look()
        free = free or self._addresses
        address = min(free, key=lambda a: (len(processing.get(a, ())), a != preferred))
        future = self._runner.submit_lean(task, parameters, [address])
        self._placed[future] = address
        return future

    def _find_workers(self) -> list[str]:
        """Return the addresses of usable workers, without those about to go."""
        nannies = self._find_nannies()
        self._leaving.intersection_update(nannies)
        return [
            address
            for address, nanny in nannies.items()
            if address not in self._leaving
            and nanny not in self._benched
            and self._nanny in (None, nanny)
        ]

    def _find_nannies(self) -> Mapping[str, str]:
        if self._roster is not None:
            return self._roster.addresses
        workers = self._describe_workers()
        return {address: worker["nanny"] for address, worker in workers.items()}

    def _describe_workers(self) -> Mapping[str, Any]:
        return self._runner.client.scheduler_info(n_workers=-1)["workers"]
