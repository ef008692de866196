"""Trials on Dask workers: submitted one by one, collected as they end, ended for real when need be.

A trial whose worker died comes back as lost, and its task runs are set to Crashed.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from threading import Event
from time import monotonic, sleep
from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Crashed, Failed
from prefect_dask.task_runners import PrefectDaskFuture

from prefect_tune.flows.workers.clusters import started_runner
from prefect_tune.flows.workers.reaping import end_trial_run, reap
from prefect_tune.optimizers.trials.trial import Failure, Trial
from prefect_tune.tasks.evaluate import Report, TrialOutcome, evaluate
from prefect_tune.tasks.study_context import StudyContext
from prefect_tune.tasks.worker.dask_runner import LeanDaskTaskRunner, drain_worker, end_worker
from prefect_tune.tasks.worker.readiness import make_ready
from prefect_tune.tasks.worker.trial_limits import LimitKeeper, TrialLimits

__all__ = ["DaskTrials", "Ended"]

_LOGGER = logging.getLogger(__name__)

_MOMENT_SECONDS = 1.0
"""How long to wait for what a nanny says or does when a worker dies."""
_COME_BACK_SECONDS = 60.0
"""How long a task that is no trial waits for workers that died to be back."""
_RUN_ATTEMPTS = 2
"""How often a task that is no trial is started whose worker dies."""
_TICK_SECONDS = 0.02
_LOOK_SECONDS = 0.5
"""Between two looks at a task that is waited for."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A trial that is no longer under way.

    Attributes:
        trial: The trial as it was started.
        outcome: What the worker sent back; None when it died or was ended.
        failure: Why it died or was ended; None when there is an outcome.
    """

    trial: Trial
    outcome: TrialOutcome | None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class _Running:
    trial: Trial
    future: PrefectDaskFuture[Any]
    started: float


class DaskTrials:
    """As many trials at the same time as there are slots. Make one with `DaskTrials.started`.

    Args:
        runner: A started runner.
        context: The study.
        flow_run_id: The flow run that the task runs belong to.
        n_slots: Trials at the same time.
        limits: What each trial may take.
        nanny: Address of the nanny whose worker is the only one we may use; None for any worker.
    """

    def __init__(
        self,
        runner: LeanDaskTaskRunner,
        context: StudyContext,
        flow_run_id: UUID,
        n_slots: int,
        limits: TrialLimits,
        *,
        nanny: str | None = None,
    ) -> None:
        self._runner, self._context, self._flow_run_id = runner, context, flow_run_id
        self.n_slots = n_slots
        self.n_task_runs = 0
        self._running: dict[UUID, _Running] = {}
        self._done: SimpleQueue[UUID] = SimpleQueue()
        self._is_short = False
        self._words: dict[str, Mapping[str, Any]] = {}
        self._limits = limits
        self._keeper = LimitKeeper(str(flow_run_id), limits)
        self._nanny = nanny
        self._places: list[str] = []
        self._ended_workers: set[str] = set()
        self._sharing: list[DaskTrials] = []
        self._free_nannies: SimpleQueue[str] = SimpleQueue()

    @classmethod
    @contextmanager
    def started(
        cls,
        context: StudyContext,
        flow_run_id: UUID,
        limits: TrialLimits,
        *,
        n_workers: int | None = None,
        scheduler: str | None = None,
    ) -> Iterator["DaskTrials"]:
        """Have workers ready, and end what still runs on them afterwards.

        Args:
            context: The study.
            flow_run_id: The flow run that the task runs belong to.
            limits: What each trial may take.
            n_workers: Trials at the same time; None for one per core, or per worker of the
                scheduler.
            scheduler: Address of a Dask scheduler; None for local workers.

        Raises:
            BadInput: If a scheduler cannot be reached, or one of its workers cannot work for us.
        """
        with started_runner(context, limits, n_workers, scheduler) as (runner, n_started):
            n_slots = min(n_workers or n_started, n_started)
            trials = cls(runner, context, flow_run_id, n_slots, limits)
            with trials._limited():
                try:
                    yield trials
                finally:
                    trials.cut("the flow ended")
                    runner.client.run(drain_worker, on_error="ignore")

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Have the workers' nannies keep the trials' limits, and tell us when they end one."""
        client = self._runner.client
        client.subscribe_topic(self._keeper.topic, self._note_failure)
        client.register_plugin(self._keeper)
        try:
            yield
        finally:
            with suppress(Exception):  # a cluster that is gone keeps no limits
                client.unregister_worker_plugin(self._keeper.name, nanny=True)
                client.unsubscribe_topic(self._keeper.topic)

    async def _note_failure(self, event: tuple[float, Mapping[str, Any]]) -> None:
        """Take the word of a nanny, in Dask's own thread."""
        _, word = event
        self._words[word["trial"]] = word
        if word["failure"]["kind"] == "crashed":
            return
        for trials in (self, *self._sharing):
            if (future := trials.future_of(UUID(word["trial"]))) is not None:
                # Or Dask starts it on another worker when this one is killed, in a moment.
                await future.wrapped_future.cancel(force=True)

    def future_of(self, task_run_id: UUID) -> PrefectDaskFuture[Any] | None:
        """The future of a trial, if it is one of ours under way."""
        running = self._running.get(task_run_id)
        return None if running is None else running.future

    def prepare_workers(self) -> None:
        """Have no trial pay for what is done once per worker, and workers ready to be shared."""
        self._runner.prepare_workers(partial(make_ready, self._context))
        workers = self._runner.client.scheduler_info(n_workers=-1)["workers"]
        nannies = {worker["nanny"] for worker in workers.values()}
        for nanny in sorted(nannies)[: self.n_slots]:
            self._free_nannies.put(nanny)

    @contextmanager
    def sharing(self, context: StudyContext) -> Iterator["DaskTrials"]:
        """Trials of another study, one at a time, on a worker that is theirs in the body.

        After `prepare_workers`, that may be in other threads, as many as there are slots. What
        happens to the worker of one is not noticed by the others.
        """
        nanny = self._free_nannies.get()
        other = DaskTrials(self._runner, context, self._flow_run_id, 1, self._limits, nanny=nanny)
        other._words, other._ended_workers = self._words, self._ended_workers
        other._is_short = True  # until its worker is known
        self._sharing.append(other)
        try:
            yield other
        finally:
            other.cut("its study ended")
            self._free_nannies.put(nanny)

    @property
    def n_task_runs_of_all(self) -> int:
        """Task runs of these trials and of all that share their workers."""
        return sum(trials.n_task_runs for trials in (self, *self._sharing))

    @property
    def n_running(self) -> int:
        """Trials under way."""
        return len(self._running)

    def has_room(self) -> bool:
        """Whether a worker is free.

        While one that died is not back yet, a trial more would wait at another one, and die with
        it if that one dies.
        """
        n_workers = self.n_slots
        if self._is_short:
            self._places = self._workers()
            n_workers = min(len(self._places), self.n_slots)
            self._is_short = n_workers < self.n_slots
        return self.n_running < n_workers

    def _workers(self) -> list[str]:
        """Addresses of the workers that we may use, without those that are about to go."""
        workers = self._runner.client.scheduler_info(n_workers=-1)["workers"]
        self._ended_workers.intersection_update(workers)
        return [
            address
            for address, worker in workers.items()
            if address not in self._ended_workers and self._nanny in (None, worker["nanny"])
        ]

    def submit(self, trial: Trial, report: Report) -> None:
        """Start a trial on a free worker."""
        parameters = {
            "number": trial.number,
            "query": trial.query.to_json(),
            "context": self._context,
            "report": report,
        }
        future = self._submit(evaluate, parameters)
        self._running[future.task_run_id] = _Running(trial, future, monotonic())
        future.wrapped_future.add_done_callback(
            lambda _, task_run_id=future.task_run_id: self._done.put(task_run_id)
        )

    def _submit(self, task: Any, parameters: Mapping[str, Any]) -> PrefectDaskFuture[Any]:
        places = None if self._nanny is None else self._places
        return self._runner.submit_lean(task, parameters, places)

    def collect(self, timeout_seconds: float) -> list[Ended]:
        """What has ended, after waiting at most that long for the first."""
        ended = []
        if self._is_short:
            timeout_seconds = min(timeout_seconds, _TICK_SECONDS)
        try:
            first = self._done.get(timeout=timeout_seconds)
        except Empty:
            for under_way in self._running.values():
                self._give_up(under_way.future)
            return []
        for task_run_id in [first, *_drained(self._done)]:
            running = self._running.pop(task_run_id, None)
            if running is not None:  # or it was cut
                ended.append(self._ended(running))
        return ended

    def _give_up(self, future: PrefectDaskFuture[Any]) -> None:
        """Have a task end whose only worker is gone; Dask would wait for that one for ever."""
        if self._nanny is not None and not set(self._places) & set(self._workers()):
            future.wrapped_future.cancel(force=True)

    def run(
        self,
        task: Any,
        parameters: Mapping[str, Any],
        *,
        limit_seconds: float = inf,
        check: Callable[[], None] = lambda: None,
    ) -> Any:
        """Run another task on a worker and wait for its result; once more if its worker dies.

        Args:
            task: The task.
            parameters: Its parameters.
            limit_seconds: Longest that it may take on a worker.
            check: Called while it runs; the task is ended when this raises.

        Raises:
            RuntimeError: If there is no worker, or each that ran it died.
            TimeoutError: If it took longer.
            Exception: What the task raises, and `check`. (A trial that failed raises nothing.)
        """
        for _ in range(_RUN_ATTEMPTS):
            self._wait_for_worker(check)
            future = self._submit(task, parameters)
            try:
                if self._is_finished(future, limit_seconds, check):
                    state: State[Any] = future.wrapped_future.result()
                    result = getattr(state.data, "result", state.data)
                    if not isinstance(result, TrialOutcome):
                        result = future.result()
                    self.n_task_runs += getattr(result, "n_task_runs", 1)
                    return result
            finally:
                future.wrapped_future.release()
        raise RuntimeError(f"the worker process died in {_RUN_ATTEMPTS} attempts")

    def _wait_for_worker(self, check: Callable[[], None]) -> None:
        """Wait until there is a worker that is not about to go, after one died or was ended.

        Raises:
            RuntimeError: If none comes back.
        """
        until = monotonic() + _COME_BACK_SECONDS
        while self._is_short:
            if self.has_room() and (self._nanny is not None or not self._ended_workers):
                return
            if monotonic() > until:
                raise RuntimeError(f"no worker came back within {_COME_BACK_SECONDS:g} s")
            check()
            sleep(_TICK_SECONDS)

    def _is_finished(
        self, future: PrefectDaskFuture[Any], limit_seconds: float, check: Callable[[], None]
    ) -> bool:
        """Wait for a task that is no trial; False when its worker died."""
        until, done = monotonic() + limit_seconds, Event()
        future.wrapped_future.add_done_callback(lambda _: done.set())
        try:
            while not done.wait(_LOOK_SECONDS):
                check()
                self._give_up(future)
                if monotonic() > until:
                    raise TimeoutError(f"took more than {limit_seconds:g} s")  # noqa: TRY301
        except BaseException as error:
            self._end([future])
            state: State[Any] = Cancelled(message=str(error) or "the flow was interrupted")
            reap(self._flow_run_id, state, of_trials=[future.task_run_id])
            raise
        if future.wrapped_future.status == "finished":
            return True
        self._is_short = True
        died: State[Any] = Crashed(message="the worker process died")
        reap(self._flow_run_id, died, of_trials=[future.task_run_id])
        return False

    def cut(self, reason: str) -> list[Trial]:
        """End all trials under way, for real: their worker processes go and come back."""
        cut = list(self._running.values())
        self._running.clear()
        if not cut:
            return []
        self._end([running.future for running in cut])
        self._settle(cut, Cancelled(message=reason))
        return [running.trial for running in cut]

    def _end(self, futures: Sequence[PrefectDaskFuture[Any]]) -> None:
        """End tasks with the processes that they run in."""
        client = self._runner.client
        ours = {future.wrapped_future.key for future in futures}
        busy = [address for address, keys in client.processing().items() if ours & set(keys)]
        self._ended_workers.update(busy)
        self._is_short = True
        client.cancel([future.wrapped_future for future in futures], force=True)
        for address in busy:
            client.run(end_worker, address, workers=[address], nanny=True, on_error="ignore")

    def _ended(self, running: _Running) -> Ended:
        self.n_task_runs += 1
        try:
            state: State[Any] = running.future.wrapped_future.result()
        except (Exception, CancelledError) as error:  # its worker died or was ended
            _LOGGER.info(f"trial {running.trial.number} was lost: {error}")
            return self._lost(running)
        finally:
            running.future.wrapped_future.release()  # or Dask computes it again when a worker dies
        outcome = _outcome(state, monotonic() - running.started)
        self.n_task_runs += outcome.n_task_runs - 1
        return Ended(running.trial, outcome)

    def _lost(self, running: _Running) -> Ended:
        """Settle a trial whose worker died or was ended; its nanny may know why and where."""
        self._is_short = True
        task_run_id = str(running.future.task_run_id)
        _wait_for(lambda: task_run_id in self._words)
        word = self._words.pop(task_run_id, None)
        if word is None:
            seconds = monotonic() - running.started
            failure = Failure("crashed", "the worker process died", cost_seconds=seconds)
        else:
            failure = Failure(**word["failure"])
            self._ended_workers.add(word["worker"])
            # Until Dask sees the worker go, it would send the next trial there.
            _wait_for(lambda: word["worker"] not in self._runner.client.processing())
        where = f"{failure.step}, fold {failure.fold}: " if failure.step else ""
        message = where + failure.message
        states: dict[str, State[Any]] = {
            "timeout": Failed(name="TimedOut", message=message),
            "memory": Failed(message=message),
        }
        self._settle([running], states.get(failure.kind, Crashed(message=message)))
        return Ended(running.trial, None, failure)

    def _settle(self, trials: Sequence[_Running], state: State[Any]) -> None:
        """Give the task runs of trials, and what ran in them, a final state."""
        for running in trials:
            end_trial_run(
                self._flow_run_id, running.future.task_run_id, running.trial.number, state
            )
        reap(self._flow_run_id, state, of_trials=[r.future.task_run_id for r in trials])


def _outcome(state: State[Any], seconds: float) -> TrialOutcome:
    """What the state of a trial's task run holds."""
    data = getattr(state.data, "result", state.data)
    if isinstance(data, TrialOutcome):
        return data
    return TrialOutcome(None, Failure("error", str(state.message), cost_seconds=seconds), 1)


def _wait_for(happened: Callable[[], bool]) -> None:
    """Wait for what should happen in a moment, but not for ever."""
    until = monotonic() + _MOMENT_SECONDS
    while not happened() and monotonic() < until:
        sleep(_TICK_SECONDS)


def _drained(queue: SimpleQueue[UUID]) -> Iterator[UUID]:
    while True:
        try:
            yield queue.get_nowait()
        except Empty:
            return
