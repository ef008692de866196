"""The Dask workers that tasks of ours may run on: those that are there and are not about to go.

A worker that dies, or is ended, takes its task with it and is back in a moment. Until then, a task
more than there are workers would wait at another one, and die with that one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Any

from prefect_dask.task_runners import PrefectDaskFuture

from prefect_tune.tasks.worker.dask_runner import LeanDaskTaskRunner, drain_worker, end_worker

__all__ = ["WorkerPool"]

_LEAVE_SECONDS = 1.0
"""How long to wait until the scheduler notices that a worker is gone."""
_RETURN_SECONDS = 60.0
"""How long to wait for workers that died to be back."""
_TICK_SECONDS = 0.02


class WorkerPool:
    """Workers for as many tasks at the same time as there are slots.

    Args:
        runner: A started runner.
        n_slots: Tasks at the same time.
        nanny: Address of the nanny whose worker is the only one to use; None for any worker.
        leaving: Addresses of workers that are about to go, shared by the pools of one runner.
    """

    def __init__(
        self,
        runner: LeanDaskTaskRunner,
        n_slots: int,
        *,
        nanny: str | None = None,
        leaving: set[str] | None = None,
    ) -> None:
        self.n_slots = n_slots
        self._runner, self._nanny = runner, nanny
        self._leaving = set() if leaving is None else leaving
        self._addresses: list[str] = []
        self._benched: set[str] = set()
        self._is_short = nanny is not None  # until its worker is known
        self._free_nannies: SimpleQueue[str] = SimpleQueue()

    @property
    def is_short(self) -> bool:
        """Whether there were fewer workers than slots when this was last known."""
        return self._is_short

    def count_slots(self) -> int:
        """Count the tasks that may run now, which are fewer while a worker is not back yet."""
        if not self._is_short:
            return self.n_slots
        self._addresses = self._find_workers()
        n_slots = min(len(self._addresses), self.n_slots)
        self._is_short = n_slots < self.n_slots
        return n_slots

    def submit(
        self, task: Any, parameters: Mapping[str, Any], preferred: str | None = None
    ) -> PrefectDaskFuture[Any]:
        """Submit one run of a Prefect task.

        Args:
            task: The task.
            parameters: Its parameters.
            preferred: Address of the worker to run it if it is free; None for any.
        """
        if self._nanny is not None or self._benched:
            return self._runner.submit_lean(task, parameters, self._addresses)
        if preferred is None or not self._is_free(preferred):
            return self._runner.submit_lean(task, parameters)
        return self._runner.submit_lean(task, parameters, [preferred], allow_other_workers=True)

    def cancel_stranded(self, future: PrefectDaskFuture[Any]) -> None:
        """Cancel a task whose only worker is gone: Dask would wait for that one for ever."""
        if self._nanny is not None and not set(self._addresses) & set(self._find_workers()):
            future.wrapped_future.cancel(force=True)

    def end(self, futures: Sequence[PrefectDaskFuture[Any]]) -> None:
        """End tasks together with the processes that they run in."""
        client = self._runner.client
        keys = {future.wrapped_future.key for future in futures}
        busy = [address for address, theirs in client.processing().items() if keys & set(theirs)]
        self._leaving.update(busy)
        self._is_short = True
        client.cancel([future.wrapped_future for future in futures], force=True)
        for address in busy:
            client.run(end_worker, address, workers=[address], nanny=True, on_error="ignore")

    def note_death(self, address: str | None = None) -> None:
        """Note that a worker is gone, and wait a moment until the scheduler knows, too.

        Args:
            address: The worker; None if it is not known which.
        """
        self._is_short = True
        if address is None:
            return
        self._leaving.add(address)
        until = monotonic() + _LEAVE_SECONDS
        # Until then, the scheduler would send the next task there.
        while address in self._runner.client.processing() and monotonic() < until:
            sleep(_TICK_SECONDS)

    def bench(self, address: str) -> int:
        """Use a worker no more, nor any that its nanny starts; return how many are left.

        Args:
            address: The worker.
        """
        workers = self._describe_workers()
        if address in workers:
            self._benched.add(workers[address]["nanny"])
        self._is_short = True
        return len({worker["nanny"] for worker in workers.values()} - self._benched)

    def wait_for_worker(self, check: Callable[[], None]) -> None:
        """Wait until a task that is submitted now goes to a worker that stays.

        Args:
            check: Called while waiting; ends it by raising.

        Raises:
            RuntimeError: If no worker comes back.
        """
        until = monotonic() + _RETURN_SECONDS
        while self._is_short:
            # Where any worker may be used, it could go to one that is leaving.
            if self.count_slots() > 0 and (self._nanny is not None or not self._leaving):
                return
            if monotonic() > until:
                raise RuntimeError(f"no worker came back within {_RETURN_SECONDS:g} s")
            check()
            sleep(_TICK_SECONDS)

    def prepare(self, make_ready: Callable[[], None]) -> None:
        """Call a function on each worker once, and let `reserved` hand the workers out."""
        self._runner.prepare_workers(make_ready)
        nannies = {worker["nanny"] for worker in self._describe_workers().values()}
        for nanny in sorted(nannies)[: self.n_slots]:
            self._free_nannies.put(nanny)

    @contextmanager
    def reserved(self) -> Iterator["WorkerPool"]:
        """Yield a pool with one of the workers, which no other such pool has; wait for a free one.

        After `prepare`, and in any thread. The death of its worker is not noticed by the others.
        """
        nanny = self._free_nannies.get()
        try:
            yield WorkerPool(self._runner, 1, nanny=nanny, leaving=self._leaving)
        finally:
            self._free_nannies.put(nanny)

    def drain(self) -> None:
        """Send what the workers have not yet told the Prefect server."""
        with suppress(KeyError):  # a worker left meanwhile, and Dask looks for it
            self._runner.client.run(drain_worker, on_error="ignore")

    def _is_free(self, address: str) -> bool:
        """Return whether a worker is there, stays, and runs nothing: Dask would let a task wait."""
        running = self._runner.client.processing().get(address)
        return running is not None and not running and address not in self._leaving

    def _find_workers(self) -> list[str]:
        """Find the workers that we may use, without those that are about to go."""
        workers = self._describe_workers()
        self._leaving.intersection_update(workers)
        return [
            address
            for address, worker in workers.items()
            if address not in self._leaving
            and worker["nanny"] not in self._benched
            and self._nanny in (None, worker["nanny"])
        ]

    def _describe_workers(self) -> Mapping[str, Any]:
        """Return what the scheduler knows of its workers, by their addresses."""
        workers: Mapping[str, Any] = self._runner.client.scheduler_info(n_workers=-1)["workers"]
        return workers
