"""Events that studies and series send to Prefect; the documentation of Prefect lists their fields.

An event is sent in the background and may be lost with the server. Prefect adds the flow run, its
deployment and its tags as related resources.
"""

import logging
from typing import Any, Literal

from prefect.events import emit_event
from prefect.settings import get_current_settings

from prefect_tune.storage.masking import masked_values

_LOGGER = logging.getLogger(__name__)
_LONGEST = 2_000
"""Maximum characters of a text in a payload."""


def send_event(kind: Literal["study", "series"], name: str, event: str, **payload: Any) -> None:
    """Send an event on a study or a series; without a server, or on an error, send nothing."""
    if get_current_settings().api.url is None:  # Prefect would start a server for the event
        return
    resource = {
        "prefect.resource.id": f"prefect-tune.{kind}.{name}",
        "prefect.resource.name": name,
    }
    shown = {
        field: value[:_LONGEST] if isinstance(value, str) else value
        for field, value in masked_values({kind: name, **payload}).items()
    }
    try:
        emit_event(f"prefect-tune.{event}", resource, payload=shown)
    except Exception as error:  # a study does not depend on what Prefect shows
        _LOGGER.warning(f"event prefect-tune.{event} was not sent: {error}")
