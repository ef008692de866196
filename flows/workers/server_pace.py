"""How far the Prefect server is behind, and how many task runs to report meanwhile.

A server keeps events in queues of fixed length and silently drops what does not fit, which loses
task runs or leaves them Running for ever. So a study counts what it reported, asks the server what
it has recorded, and never lets the difference grow to where that happens.
"""

from time import monotonic, sleep
from typing import Literal
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType

from prefect_tune.flows.progress import Observer
from prefect_tune.tasks.evaluate import Report

__all__ = ["ServerPace"]

_LAG_ALLOWED = 1_000
"""Task runs that may be reported and not yet recorded; three events each, of a queue of 10,000."""
_LAG_RESUMED = 200
"""Task runs behind at which all are reported again."""
_LOOK_EVERY = 200
"""Task runs between two looks at the server."""
_FINAL = [StateType.COMPLETED, StateType.FAILED, StateType.CRASHED, StateType.CANCELLED]
_THINNED: tuple[Report, ...] = ("steps", "misses", "trial")


class ServerPace:
    """Decides what is reported to the server, and when it has to catch up first.

    Args:
        task_runs: What the user asked for.
        flow_run_id: The flow run whose task runs are counted.
        observer: Is told when less is reported.
    """

    def __init__(
        self, task_runs: Report | Literal["auto"], flow_run_id: UUID, observer: Observer
    ) -> None:
        self._task_runs, self._flow_run_id, self._observer = task_runs, flow_run_id, observer
        self._level = 0
        self._looked_at = 0
        self._lag = 0
        self._is_lost = False

    @property
    def report(self) -> Report:
        """What the next trial reports."""
        return _THINNED[self._level] if self._task_runs == "auto" else self._task_runs

    def may_submit(self, n_reported: int) -> bool:
        """Whether the server is near enough; `auto` reports less rather than wait.

        Args:
            n_reported: Task runs reported so far.
        """
        is_behind = self._lag > _LAG_ALLOWED
        if is_behind or n_reported - self._looked_at >= _LOOK_EVERY:
            self._lag = self._missing(n_reported)
            self._looked_at = n_reported
            self._adapt()
        return self._lag <= _LAG_ALLOWED

    def wait_until_recorded(self, n_reported: int, timeout_seconds: float = 15.0) -> int:
        """Wait until all is recorded, as long as the server gets on with it; what is missing."""
        missing, since = self._missing(n_reported), monotonic()
        while missing > 0 and monotonic() - since < timeout_seconds:
            sleep(0.2)
            now_missing = self._missing(n_reported)
            if now_missing < missing:
                missing, since = now_missing, monotonic()
        return max(missing, 0)

    def _adapt(self) -> None:
        if self._task_runs != "auto":
            return
        if self._lag > _LAG_ALLOWED / 2 and self._level < len(_THINNED) - 1:
            self._level += 1
            what = "only steps that are not cached" if self._level == 1 else "no steps"
            self._observer.note(
                f"the Prefect server is {self._lag} task runs behind: trials now show {what} there "
                "(--task-runs steps shows all and waits)"
            )
        elif self._lag < _LAG_RESUMED and self._level > 0:
            self._level -= 1

    def _missing(self, n_reported: int) -> int:
        """Task runs that were reported and are not recorded; none when the server is gone."""
        try:
            return n_reported - self._count_recorded()
        except Exception as error:  # what Prefect shows must not decide over the study
            if not self._is_lost:
                self._observer.note(
                    f"the Prefect server does not answer ({error}); the study goes on"
                )
            self._is_lost = True
            return 0

    def _count_recorded(self) -> int:
        with get_client(sync_client=True) as client:
            response = client.request(
                "POST",
                "/task_runs/count",
                json={
                    "flow_runs": {"id": {"any_": [str(self._flow_run_id)]}},
                    "task_runs": {"state": {"type": {"any_": [s.value for s in _FINAL]}}},
                },
            )
        return int(response.json())
