"""Events that studies and series send to Prefect; the documentation of Prefect lists their fields.

An event is sent in the background and may be lost with the server. Prefect adds the flow run, its
deployment and its tags as related resources.
"""

import logging
from dataclasses import asdict, dataclass
from typing import ClassVar

from prefect.events import emit_event
from prefect.settings import get_current_settings

from prefect_tune.storage.masking import masked_values

_LOGGER = logging.getLogger(__name__)
_LONGEST = 2_000
"""Maximum characters of a text in a payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedStudy:
    """Fields of both events on the end of a study."""

    study: str
    series: str | None
    data: str
    method: str
    metric: str
    n_trials: int
    n_failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedStudy(EndedStudy):
    """Payload of `prefect-tune.study-completed`."""

    loss: float | None
    test_loss: float | None
    seconds: float

    event: ClassVar[str] = "study-completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedStudy(EndedStudy):
    """Payload of `prefect-tune.study-failed`."""

    reason: str
    can_resume: bool

    event: ClassVar[str] = "study-failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChampion:
    """Payload of `prefect-tune.champion-changed`."""

    series: str
    study: str
    former: str | None
    by: str  # test, rule, promote or rollback
    reason: str
    metric: str
    loss: float | None = None
    former_loss: float | None = None
    rows: int | None = None

    event: ClassVar[str] = "champion-changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedData:
    """Payload of `prefect-tune.data-changed`."""

    series: str
    study: str
    former: str
    rows: int
    rows_added: int
    rows_removed: int
    targets_changed: int
    columns_added: int
    columns_removed: int
    classes_added: int
    classes_removed: int
    columns_differing: tuple[str, ...]

    event: ClassVar[str] = "data-changed"


def send_event(payload: CompletedStudy | FailedStudy | NewChampion | ChangedData) -> None:
    """Send an event on a study or a series; without a server, or on an error, send nothing."""
    if get_current_settings().api.url is None:  # Prefect would start a server for the event
        return
    if isinstance(payload, EndedStudy):
        kind, name = "study", payload.study
    else:
        kind, name = "series", payload.series
    resource = {
        "prefect.resource.id": f"prefect-tune.{kind}.{name}",
        "prefect.resource.name": name,
    }
    shown = {
        field: value[:_LONGEST] if isinstance(value, str) else value
        for field, value in masked_values(asdict(payload)).items()
    }
    try:
        emit_event(f"prefect-tune.{payload.event}", resource, payload=shown)
    except Exception as error:  # a study does not depend on what Prefect shows
        _LOGGER.warning(f"event prefect-tune.{payload.event} was not sent: {error}")
