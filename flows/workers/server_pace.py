"""Pacing of reports to Prefect's server: selects task runs to report, waits, and closes runs.

The server keeps events in queues of fixed length. If a queue is full, the server silently drops
events, so that task runs are lost or stay Running forever. Therefore a study counts the task runs
that it has reported, asks the server for the number of recorded task runs, and keeps the difference
far below the length of the queues.

Prefect does not notice that a worker or a flow was killed, so the runs of killed processes would
stay Running forever. This module closes the runs of killed processes. Because a study does not
depend on Prefect's display, errors are only logged.
"""

import logging
from collections.abc import Sequence
from time import monotonic, sleep
from typing import Any, Literal
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State, StateType
from prefect.states import Crashed

from prefect_tune.flows.study.progress import Observer
from prefect_tune.tasks.trial.evaluate import Report

_LAG_ALLOWED = 1_000
"""Maximum number of unrecorded task runs; each has three events in a queue of 10,000."""
_LAG_RESUMED = 200
"""Number of unrecorded task runs below which more task runs are reported again."""
_COUNT_EVERY = 200
"""Number of task runs reported between two requests to the server."""
_FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
_OPEN = ("PENDING", "RUNNING")
_LOGGER = logging.getLogger(__name__)
_REPORTS: tuple[Report, ...] = ("steps", "misses", "trial")


class OutageNote:
    """Reports an unreachable server, only once per study."""

    def __init__(self, observer: Observer) -> None:
        self._observer, self._is_reported = observer, False

    def say(self, error: Exception) -> None:
        """Report an outage of the server, unless already reported."""
        if not self._is_reported:
            self._is_reported = True
            text = f"the Prefect server does not answer ({error}); the study continues"
            self._observer.note(text)


class ServerPace:
    """Decides which task runs to report to the server, and when the server must catch up."""

    def __init__(
        self,
        task_runs: Report | Literal["auto"],
        flow_run_id: UUID,
        observer: Observer,
        outage: OutageNote | None = None,
    ) -> None:
        self._task_runs, self._flow_run_id, self._observer = task_runs, flow_run_id, observer
        self._outage = outage or OutageNote(observer)
        self._level = 0
        self._counted_at = 0
        self._lag = 0

    @property
    def report(self) -> Report:
        """Task runs that the next trial reports to the server."""
        return _REPORTS[self._level] if self._task_runs == "auto" else self._task_runs

    def may_submit(self, n_reported: int) -> bool:
        """Return whether the server can take another trial; with `auto`, adapt the reporting."""
        is_behind = self._lag > _LAG_ALLOWED
        if is_behind or n_reported - self._counted_at >= _COUNT_EVERY:
            self._lag = self._missing(n_reported)
            self._counted_at = n_reported
            can_report_less = self._lag > _LAG_ALLOWED / 2 and self._level < len(_REPORTS) - 1
            if self._task_runs == "auto" and self._lag < _LAG_RESUMED:
                self._level = max(self._level - 1, 0)
            elif self._task_runs == "auto" and can_report_less:
                self._level += 1
                reported = "only steps that are not cached" if self._level == 1 else "no steps"
                self._observer.note(
                    f"the Prefect server is {self._lag} task runs behind: trials now report "
                    f"{reported} (--task-runs steps reports all steps and waits)"
                )
        return self._lag <= _LAG_ALLOWED

    def wait_until_recorded(self, n_reported: int, timeout_seconds: float = 15.0) -> int:
        """Wait until all task runs are recorded or the server stalls; return the number missing."""
        missing, since = self._missing(n_reported), monotonic()
        while missing > 0 and monotonic() - since < timeout_seconds:
            sleep(0.2)
            now_missing = self._missing(n_reported)
            if now_missing < missing:
                missing, since = now_missing, monotonic()
        return max(missing, 0)

    def finish(self, n_reported: int) -> None:
        """Wait for the server, report missing task runs, and close task runs that are open."""
        if missing := self.wait_until_recorded(n_reported):
            self._observer.note(f"the Prefect server has not recorded {missing} task runs")
        close_open_runs(self._flow_run_id, Crashed(message="the process ended before the task run"))

    def _missing(self, n_reported: int) -> int:
        """Return the number of task runs that were reported but not yet recorded; 0 if unknown."""
        try:
            return n_reported - self._count_recorded()
        except Exception as error:  # a study does not depend on Prefect's display
            self._outage.say(error)
            return 0

    def _count_recorded(self) -> int:
        with get_client(sync_client=True) as client:
            return int(_task_runs(client, "/task_runs/count", self._flow_run_id, _FINAL))


def _task_runs(
    client: SyncPrefectClient,
    what: Literal["/task_runs/count", "/task_runs/filter"],
    flow_run_id: UUID,
    states: Sequence[str],
) -> Any:
    """Count or list a flow run's task runs in the given states; a list has at most one page."""
    of_run = {
        "flow_runs": {"id": {"any_": [str(flow_run_id)]}},
        "task_runs": {"state": {"type": {"any_": states}}},
    }
    return client.request("POST", what, json=of_run).json()


def close_open_runs(flow_run_id: UUID, state: State[Any]) -> int:
    """Set a final state for all open task runs of a flow run; return the number of task runs."""
    closed = set[str]()
    try:
        with get_client(sync_client=True) as client:
            while True:
                runs = _task_runs(client, "/task_runs/filter", flow_run_id, _OPEN)
                if not (found := {run["id"] for run in runs} - closed):
                    break
                for task_run_id in found:
                    client.set_task_run_state(UUID(task_run_id), state, force=True)
                closed |= found
    except Exception as error:
        _LOGGER.warning(f"open task runs could not be set to {state.name}: {error}")
    return len(closed)


def close_previous_flow_run(former: str | None, flow_run_id: UUID) -> None:
    """Close the flow run of an earlier session and its open task runs in Prefect.

    If Prefect retries a flow run, both flow run ids are equal, and only task runs are closed.
    """
    if former is None:
        return
    state: State[Any] = Crashed(message="the process was killed")
    with get_client(sync_client=True) as client:
        try:
            run = client.read_flow_run(UUID(former))
        except Exception:
            return  # the flow run is on another server, or was deleted
        if former != str(flow_run_id):
            if run.state is None or run.state.type not in (StateType.RUNNING, StateType.PENDING):
                return
            client.set_flow_run_state(UUID(former), state, force=True)
    close_open_runs(UUID(former), state)
