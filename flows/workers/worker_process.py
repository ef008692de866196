"""Worker processes on this machine, which provide more slots than the flow's process can serve.

A worker process reads its instructions from standard input, which stays open as long as the flow
runs. When standard input is closed, the worker ends at once, even if its threads are busy.
`multiprocessing` is not used, because it would import the user's main module in each worker and
thereby rerun any script without a main guard.
"""

import asyncio
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from math import ceil
from time import monotonic
from typing import Any

import dask
from distributed import Scheduler, Worker

from prefect_tune.tasks.sandbox.zygote import import_path

_THREADS = 4
_QUIET: Mapping[str, str] = {
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",  # or each event of an outage is printed
}
_END_SECONDS = 5.0
_PAUSE_SECONDS = 5.0
"""Shortest time between two starts of the same worker."""


class _WithoutHttp:
    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Do nothing, so that no HTTP server is started."""


class ClosedScheduler(_WithoutHttp, Scheduler):
    """A scheduler without an HTTP server."""


class ClosedWorker(_WithoutHttp, Worker):
    """A worker without an HTTP server."""


class WorkerProcesses:
    """Worker processes with at most four threads each. `restart` replaces killed processes."""

    def __init__(
        self, scheduler: str, options: Mapping[str, Any], settings: Mapping[str, Any], n_slots: int
    ) -> None:
        self._spec = {"scheduler": scheduler, "settings": dict(settings)}
        n = ceil(n_slots / _THREADS)
        self._options = [
            {**options, "nthreads": n_slots // n + (i < n_slots % n)} for i in range(n)
        ]
        self._started = [-_PAUSE_SECONDS] * n
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * n
        self.restart()

    def restart(self) -> None:
        """Start all worker processes that are not running."""
        for i, process in enumerate(self._processes):
            is_gone = process is None or process.poll() is not None
            if is_gone and monotonic() - self._started[i] >= _PAUSE_SECONDS:
                self._started[i] = monotonic()
                if process is not None:
                    _close_input(process)
                self._processes[i] = _start({**self._spec, "options": self._options[i]})

    def close(self) -> None:
        """End all worker processes, and wait until all have ended."""
        started = [process for process in self._processes if process is not None]
        for process in started:
            _close_input(process)
        for process in started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
            process.kill()
            process.wait()


def _close_input(process: "subprocess.Popen[bytes]") -> None:
    if process.stdin is not None:
        with suppress(OSError):  # the process has ended
            process.stdin.close()


def _start(spec: Mapping[str, Any]) -> "subprocess.Popen[bytes] | None":
    code = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
        f"from {__name__} import main; main()"
    )
    try:
        process = subprocess.Popen(  # noqa: S603 - our own code
            [sys.executable, "-c", code, json.dumps(import_path())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **_QUIET},
        )
    except OSError:  # tried again at the next update of the workers
        return None
    assert process.stdin is not None  # noqa: S101 - standard input is a pipe
    with suppress(OSError):  # the process has ended
        process.stdin.write(pickle.dumps(spec))
        process.stdin.flush()
    return process


def main() -> None:
    """Run a worker process: read instructions from standard input until the input is closed."""
    spec = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_input, daemon=True).start()
    asyncio.run(_work(**spec))


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


async def _work(scheduler: str, options: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    with dask.config.set(settings):
        async with ClosedWorker(scheduler, **options) as worker:
            await worker.finished()
