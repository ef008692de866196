"""Limits of trials, kept by the nannies of their workers, and what the nannies report.

They say at which step a trial is when that changes, some twice a second at most. A nanny kills a
worker whose trial is over a limit, and sees when one dies of itself. Only it knows why, and which
step the trial was at: to Dask, the worker is gone.
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
"""Least time between two reports of a nanny on the step of its trial."""
_STEPS_A_SECOND = 64
"""Of such reports from all nannies together, at most: they are all for one scheduler."""
_REPORT_SECONDS = 6.0
"""How long after a worker is gone there may be a report: its nanny looks ten times a second, where
the machine lets it."""


@dataclass(frozen=True, slots=True)
class NannyReport:
    """Why the worker of a trial is gone.

    Attributes:
        worker: Address of the worker.
        failure: The failure of its trial.
        nanny: Address of its nanny.
    """

    worker: str
    failure: Failure
    nanny: str = ""


@dataclass(frozen=True, slots=True)
class StepReport:
    """The step that a trial is at.

    Attributes:
        step: Name of the step; None before its first.
        fold: Number of the fold; None before its first.
        started: When the trial was started, by this process's monotonic clock, and later by the
            seconds in which it waited for others.
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
    """The reports on trials under way, which are known by the ids of their task runs."""

    def __init__(self) -> None:
        self._followed: dict[UUID, _Followed] = {}

    def follow(self, task_run_id: UUID, future: distributed.Future) -> None:
        """Take reports on a trial, and cancel its future when its worker is killed."""
        self._followed[task_run_id] = _Followed(future)

    def forget(self, task_run_id: UUID) -> None:
        """Take no more reports on a trial."""
        self._followed.pop(task_run_id, None)

    def step_of(self, task_run_id: UUID) -> StepReport | None:
        """Return the step that a followed trial is at, as far as that was said."""
        followed = self._followed.get(task_run_id)
        return None if followed is None else followed.step

    def wait_for(self, task_run_id: UUID, gone_since: float | None = None) -> NannyReport | None:
        """Wait a moment for the report on a followed trial, and forget the trial.

        Args:
            task_run_id: Of the trial.
            gone_since: When its worker went, by the monotonic clock; None for now.

        Returns:
            The report; None if there is none, as when the nanny died too.
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
        """Take an event of the limit keepers' topic, in Dask's own thread."""
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
        # Dask would start it again, on a worker that comes back under the same address.
        await followed.future.cancel(force=True)


@contextmanager
def limits_kept(
    client: distributed.Client, flow_run_id: UUID, limits: TrialLimits, n_workers: int = 1
) -> Iterator[NannyReports]:
    """Keep the trials of a flow run within limits, on all workers of a client's scheduler.

    What flows that were killed have left on the scheduler goes, too.

    Args:
        client: Of the scheduler.
        flow_run_id: The flow run.
        limits: The limits.
        n_workers: How many workers report, about.
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
        with suppress(Exception):  # a cluster that is gone keeps no limits
            client.unsubscribe_topic(keeper.topic)
            client.run_on_scheduler(take_back, keeper.name)
