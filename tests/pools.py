"""Plain functions on the workers of a pool, where a study has Prefect tasks."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import distributed
from prefect.client.schemas.objects import State
from prefect.context import TaskRunContext
from prefect.states import Completed
from prefect_dask.task_runners import PrefectDaskFuture
from processes import wait_for

from prefect_tune.flows.workers.local_workers import local_cluster, local_settings
from prefect_tune.flows.workers.worker_pool import WorkerPool
from prefect_tune.optimizers.trials.outcome import StepCost
from prefect_tune.tasks.worker.trial_note import loading_noted, note_step, trial_noted

SERVED = StepCost("impute", 1, 30.0, 0.25, hit=True, key="a" * 64)
"""What `noted` says of the step before the one that it is at."""

SLEEP = "import time; time.sleep(1000)"


@contextmanager
def client_of(n_workers: int) -> Iterator[distributed.Client]:
    """A client of a cluster on this machine."""
    with (
        local_settings(),
        local_cluster(n_workers) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(n_workers, timeout=120)
        yield client


class PlainRunner:
    """A runner of plain functions, in the place of a `LeanDaskTaskRunner`."""

    def __init__(self, client: distributed.Client) -> None:
        self.client = client

    def submit_lean(
        self,
        task: Callable[..., Any],
        parameters: Mapping[str, Any],
        workers: Sequence[str] | None = None,
        *,
        allow_other_workers: bool = False,
    ) -> PrefectDaskFuture[Any]:
        future = self.client.submit(
            task,
            **parameters,
            workers=workers,
            allow_other_workers=allow_other_workers,
            pure=False,
        )
        return PrefectDaskFuture(wrapped_future=future, task_run_id=uuid4())

    def prepare_workers(self, make_ready: Callable[[], None], workers: Sequence[str]) -> None:
        self.client.run(make_ready, workers=list(workers))


def pool_of(client: distributed.Client, n_slots: int = 2, **options: Any) -> WorkerPool:
    """A pool of all workers of a client, once none of them is about to come back."""
    wait_for(lambda: len(client.run(os.getpid, on_error="ignore")) == len(client.cluster.workers))
    return WorkerPool(PlainRunner(client), n_slots, **options)


def worker_of(client: distributed.Client, future: PrefectDaskFuture[Any]) -> tuple[str, int]:
    """Address and process of the worker that a task is running on."""

    def address() -> str | None:
        key = future.wrapped_future.key
        return next((a for a, keys in client.processing().items() if key in keys), None)

    found = wait_for(address)
    return found, client.run(os.getpid, workers=[found])[found]


def pause(seconds: float) -> None:
    """Takes so many seconds."""
    sleep(seconds)


def started_child() -> int:
    """A process that its worker has started, in a session of its own."""
    return subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True).pid


def die() -> None:
    """The end of the process that calls it."""
    os.kill(os.getpid(), signal.SIGKILL)


def noted_death(folder: Path) -> None:
    """Dies whenever it is started, which it notes."""
    folder.mkdir(exist_ok=True)
    (folder / str(os.getpid())).touch()
    die()


def die_unless(path: Path) -> State[str]:
    """Dies when it is called first."""
    if not path.exists():
        path.touch()
        die()
    return Completed(data="alive")


def meet(folder: Path, number: int, n: int) -> State[int]:
    """Ends when so many of these have begun."""
    (folder / str(number)).touch()
    wait_for(lambda: len(list(folder.iterdir())) >= n)
    return Completed(data=number)


def noted(
    task_run_id: UUID, flow_run_id: UUID, seconds: float, limit_seconds: float | None = None
) -> None:
    """A trial that notes where it is and takes so many seconds; it dies if they are negative."""
    with _trial(task_run_id, flow_run_id, limit_seconds):
        note_step("fit model", 1, lambda: [SERVED])
        sleep(abs(seconds))
        if seconds < 0:
            die()


def loading(
    task_run_id: UUID, flow_run_id: UUID, load_seconds: float, seconds: float = 0.0
) -> None:
    """A trial whose worker loads the data for so long before its first step."""
    with _trial(task_run_id, flow_run_id):
        with loading_noted():
            sleep(load_seconds)
        note_step("fit model", 1)
        sleep(seconds)


def with_children(task_run_id: UUID, flow_run_id: UUID, folder: Path, code: str, end: str) -> None:
    """A trial that starts children by all ways, which run `code`, before it ends in its way."""
    with _trial(task_run_id, flow_run_id):
        for new_session in (False, True):
            child = subprocess.Popen([sys.executable, "-c", code], start_new_session=new_session)
            (folder / str(child.pid)).touch()
        if os.fork() == 0:
            (folder / str(os.getpid())).touch()
            sleep(1000)
        sleep(0.5 if end else 1000)
        if end == "dies":
            die()


@contextmanager
def _trial(
    task_run_id: UUID, flow_run_id: UUID, limit_seconds: float | None = None
) -> Iterator[None]:
    """A trial, as far as a worker notes it."""
    context: Any = SimpleNamespace(
        task_run=SimpleNamespace(id=task_run_id, flow_run_id=flow_run_id)
    )
    token = TaskRunContext.__var__.set(context)
    try:
        with trial_noted(limit_seconds=limit_seconds):
            yield
    finally:
        TaskRunContext.__var__.reset(token)
