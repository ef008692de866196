"""Reports of nannies, which enforce the limits of trials on their workers.

A nanny reports the current step of its trial, at most about twice a second. It kills a worker whose
trial is over a limit, and notices a worker that dies. Only the nanny knows the reason and the
step; Dask knows only that the worker is gone.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any
from uuid import UUID

import distributed

from prefect_tune.optimizers.converter import from_document
from prefect_tune.optimizers.trials.outcome import Failure
from prefect_tune.tasks.problem import TrialLimits
from prefect_tune.tasks.worker.limit_keeper import LimitKeeper, take_back

_STEP_SECONDS = 0.5
"""Shortest interval between two step reports of a nanny."""
_STEPS_A_SECOND = 64
"""Maximum step reports from all nannies together, because one scheduler receives them all."""
_REPORT_SECONDS = 6.0
"""Wait for a report after a worker is gone; its nanny checks ten times a second if the machine is
not overloaded."""


@dataclass(frozen=True, slots=True)
class NannyReport:
    """Why the worker of a trial is gone."""

    worker: str
    failure: Failure
    nanny: str = ""


@dataclass(frozen=True, slots=True)
class StepReport:
    """The current step of a trial.

    Attributes:
        started: Start of the trial by this process's monotonic clock, plus its waiting time.
    """

    step: str | None
    fold: int | None
    started: float


@dataclass(slots=True)
class _Followed:
    future: distributed.Future
    reports: SimpleQueue[NannyReport] = field(default_factory=SimpleQueue)
    step: StepReport | None = None


class NannyReports:
    """Reports on running trials, identified by their task runs."""

    def __init__(self) -> None:
        self._followed: dict[UUID, _Followed] = {}

    def follow(self, task_run_id: UUID, future: distributed.Future) -> None:
        """Receive reports on a trial, and cancel its future if its worker is killed."""
        self._followed[task_run_id] = _Followed(future)

    def forget(self, task_run_id: UUID) -> None:
        """Stop receiving reports on a trial."""
        self._followed.pop(task_run_id, None)

    def step_of(self, task_run_id: UUID) -> StepReport | None:
        """Return the last reported step of a trial; None if unknown."""
        followed = self._followed.get(task_run_id)
        return None if followed is None else followed.step

    def wait_for(self, task_run_id: UUID, gone_since: float | None = None) -> NannyReport | None:
        """Wait briefly for the report on a trial, then forget it; None if there is no report.

        `gone_since` is the time of its worker's end by the monotonic clock; None for now.
        """
        now = monotonic()
        until = (now if gone_since is None else gone_since) + _REPORT_SECONDS
        try:
            return self._followed[task_run_id].reports.get(timeout=max(until - now, 0.0))
        except Empty:
            return None
        finally:
            self.forget(task_run_id)

    async def receive(self, event: tuple[float, Mapping[str, Any]]) -> None:
        """Process an event of the limit keepers' topic; runs in Dask's own thread."""
        _, message = event
        followed = self._followed.get(UUID(message["trial"]))
        if followed is None:
            return
        if "failure" not in message:
            started = monotonic() - message["seconds"]
            followed.step = StepReport(message["step"], message["fold"], started)
            return
        failure = from_document(Failure, message["failure"])
        followed.reports.put(NannyReport(message["worker"], failure, message["nanny"]))
        # Dask would restart the task on a worker that returns under the same address.
        await followed.future.cancel(force=True)


@contextmanager
def enforce_limits(
    client: distributed.Client, flow_run_id: UUID, limits: TrialLimits, n_workers: int = 1
) -> Iterator[NannyReports]:
    """Enforce limits on the trials of a flow run, on all workers of a scheduler.

    Plugins left on the scheduler by killed flows are removed too. `n_workers` is approximate.
    """
    tell_seconds = max(_STEP_SECONDS, n_workers / _STEPS_A_SECOND)
    keeper = LimitKeeper(str(flow_run_id), limits, client.id, tell_seconds)
    reports = NannyReports()
    client.run_on_scheduler(take_back, keeper.name)
    client.subscribe_topic(keeper.topic, reports.receive)
    client.register_plugin(keeper)
    try:
        yield reports
    finally:
        with suppress(Exception):  # the cluster may be gone
            client.unsubscribe_topic(keeper.topic)
            client.run_on_scheduler(take_back, keeper.name)
