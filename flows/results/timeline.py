"""When each trial of a study was asked for and ended, and why it was asked for.

Light to import: it reads the events of the ledger.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.store import ArtifactStore

__all__ = ["Moments", "moments_of"]


@dataclass(frozen=True, slots=True)
class Moments:
    """The events of a study, as far as they are of one trial.

    Attributes:
        asked: When it was asked for, in seconds since 1970.
        queued: When it was asked for or retried last: since then it may run.
        ended: When it ended last; None while it has not.
        reason: Phase of the method and text, why it was asked for; None where that is not kept.
        task_run_id: Its task run in Prefect; empty where there is none.
        output_bytes: Bytes kept of what it printed; None while it has not ended, and where the
            version of prefect-tune that ran it kept no output.
    """

    asked: float
    queued: float
    ended: float | None = None
    reason: Mapping[str, Any] | None = None
    task_run_id: str = ""
    output_bytes: int | None = None

    def span(self, cost_seconds: float) -> tuple[float, float | None]:
        """Return when the last attempt began and ended.

        What has not ended begins when it may run; what has ended began as long before as it took,
        so that neither waiting nor an earlier attempt counts.

        Args:
            cost_seconds: What it took, where it has ended.
        """
        return (
            (self.queued, None) if self.ended is None else (self.ended - cost_seconds, self.ended)
        )


def moments_of(store: ArtifactStore, study: str) -> dict[int, Moments]:
    """Return what the events of a study say of its trials, by number."""
    found: dict[int, Moments] = {}
    for event in Ledger(store.database).each_event(study):
        number = event.body["number"]
        if event.kind == "ask":
            found[number] = Moments(event.at, event.at, reason=event.body.get("reason"))
        elif event.kind == "tell" and number in found:
            run = event.body.get("task_run_id") or ""
            found[number] = replace(
                found[number],
                ended=event.at,
                task_run_id=str(run),
                output_bytes=event.body.get("output_bytes"),
            )
        elif event.kind == "retry" and number in found:
            found[number] = replace(
                found[number], queued=event.at, ended=None, task_run_id="", output_bytes=None
            )
    return found
