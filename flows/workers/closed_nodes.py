"""Dask nodes that answer nobody but each other and the flow: a scheduler runs anyone's code.

All traffic is TLS with one temporary key that lives in the memory of these processes. Dask's HTTP
servers (dashboard, metrics, tasks with their arguments) would ask for no key: there are none.
"""

from typing import Any

from distributed import Scheduler, Worker

__all__ = ["ClosedScheduler", "ClosedWorker"]


class _WithoutHttp:
    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Start none."""


class ClosedScheduler(_WithoutHttp, Scheduler):
    """A scheduler without an HTTP server."""


class ClosedWorker(_WithoutHttp, Worker):
    """A worker without an HTTP server."""
