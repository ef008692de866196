"""Warnings of a worker, sent to the flow as events of Dask while its trial still runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any

from prefect_tune.storage.notices import Notice, noticed_by


def notice_topic(flow_run: str) -> str:
    """Return the topic of the warnings that belong to a flow run."""
    return f"prefect-tune notices {flow_run}"


@contextmanager
def notices_sent(worker: Any, flow_run: str) -> Iterator[None]:
    """Send the warnings of the body to the flow.

    Args:
        worker: The Dask worker that runs the body.
        flow_run: Id of the flow run that it belongs to.
    """
    with noticed_by(_Sender(worker, flow_run)):
        yield


class _Sender:
    """Sends the first warning of each kind and subject, so that a thousand are one event."""

    def __init__(self, worker: Any, flow_run: str) -> None:
        self._worker, self._flow_run = worker, flow_run
        self._sent = _sent_before(worker.address, flow_run)

    def __call__(self, notice: Notice) -> None:
        if (notice.kind, notice.subject) in self._sent:
            return
        self._sent.add((notice.kind, notice.subject))
        message = asdict(replace(notice, flow_run=self._flow_run))
        self._worker.log_event(notice_topic(self._flow_run), message)


@lru_cache(maxsize=8)
def _sent_before(address: str, flow_run: str) -> set[tuple[str, str]]:  # noqa: ARG001 - the cache's key
    """Return the set of kinds and subjects that a worker has sent to a flow run, to be added to."""
    return set()
