"""Warnings of workers, handed on in the flow's process as if they were its own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from typing import Any
from uuid import UUID

import distributed

from prefect_tune.storage.notices import Notice, relay
from prefect_tune.tasks.worker.sent_notices import notice_topic

__all__ = ["notices_received"]


@contextmanager
def notices_received(client: distributed.Client, flow_run_id: UUID) -> Iterator[None]:
    """Hand on the warnings that workers send while the body runs.

    Args:
        client: Client of the workers' scheduler.
        flow_run_id: Flow run that the warnings belong to.
    """
    topic = notice_topic(str(flow_run_id))
    client.subscribe_topic(topic, _receive)
    try:
        yield
    finally:
        with suppress(Exception):  # the cluster may be gone
            client.unsubscribe_topic(topic)


async def _receive(event: tuple[float, Mapping[str, Any]]) -> None:
    """Hand on a warning, in Dask's own thread."""
    message = event[1]  # Dask adds fields of its own, as the address of the worker
    relay(Notice(**{field.name: message[field.name] for field in fields(Notice)}))
