"""Trials, jobs and plain functions on the workers of a pool, inside and outside flow runs."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import distributed
import psutil
from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed
from prefect_dask.task_runners import PrefectDaskFuture
from processes import kill, wait_for
from studies import draw, with_space
from user_spaces import PRELUDE

from prefect_tune.flows.workers.clusters import local_cluster
from prefect_tune.flows.workers.dask_trials import DaskTrials, Ended
from prefect_tune.flows.workers.pool import WorkerPool, Workers
from prefect_tune.optimizers import Trial
from prefect_tune.tasks.problem import StudyContext

GATED = f"""{PRELUDE}

FOLDER = Path({{folder!r}})


class Waits(GaussianNB):
    def fit(self, X, y):
        (FOLDER / f"at {{{{os.getpid()}}}}").touch()
        while not (FOLDER / "open").exists():
            sleep(0.02)
        return super().fit(X, y)


space = models(one("waits", Waits, SMOOTHING))
"""
"""A space whose models wait for the file `open`, and name their process in the same folder."""


class Gate:
    """A folder that trials in the space `GATED` wait for."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder

    def before(self, context: StudyContext) -> StudyContext:
        """Return the study with models that wait."""
        return with_space(context, GATED.format(folder=str(self._folder)))

    def open(self) -> None:
        (self._folder / "open").touch()

    def arrived(self, n: int = 1, *, without: Sequence[int] = (), ended: Any = bool) -> list[int]:
        """Return `n` new sandboxes at the gate; fail if `ended()` becomes true before."""
        with suppress(AssertionError):  # a timeout is reported below
            wait_for(lambda: len(self._at(without)) >= n or ended())
        at = self._at(without)
        assert len(at) >= n, f"{len(at)} of {n} models began"
        return at

    def _at(self, without: Sequence[int]) -> list[int]:
        at = {int(path.name.split()[1]) for path in self._folder.glob("at *")}
        return sorted(at - {*without})


class _Body:
    """The body of a flow, which workers do not need."""

    def __init__(self, body: Callable[[DaskTrials], Any] | None = None) -> None:
        self._body = body

    def __call__(self, trials: DaskTrials) -> Any:
        assert self._body is not None
        return self._body(trials)

    def __reduce__(self) -> Any:
        return _Body, ()


def in_flow(
    context: StudyContext,
    body: Callable[[DaskTrials], Any],
    **where: Any,
) -> tuple[Any, UUID]:
    """Return the result of a body with trials inside a flow run, and the id of the run."""

    run = _Body(body)

    @flow(persist_result=False)
    def study() -> tuple[Any, UUID]:
        flow_run_id = UUID(str(flow_run.id))
        with DaskTrials.started(context, flow_run_id, **where) as trials:
            return run(trials), flow_run_id

    returned: tuple[Any, UUID] = study()
    return returned


def start(trials: DaskTrials, context: StudyContext, *numbers: int, report: Any = "steps") -> None:
    """Start trials of a study, each once there is room."""
    for number in numbers:
        wait_for(trials.has_room)
        trials.submit(Trial(number, draw(context, number)).started(), report)


def collected(trials: DaskTrials, n: int) -> list[Ended]:
    """Return `n` trials once they have ended."""
    ended: list[Ended] = []
    wait_for(lambda: ended.extend(trials.collect(0.2)) or len(ended) >= n)
    return ended


@contextmanager
def local_pool(n_slots: int) -> Iterator[WorkerPool]:
    """Yield a pool of plain functions on a cluster on this machine."""
    with (
        local_cluster(n_slots) as (cluster, processes),
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        workers = Workers(client, processes=processes)
        workers.wait_for_all(n_slots)
        yield WorkerPool(PlainRunner(client), n_slots, workers)


class PlainRunner:
    """A runner of plain functions that replaces a `LeanDaskTaskRunner`."""

    def __init__(self, client: distributed.Client) -> None:
        self.client = client

    def submit_lean(
        self, task: Callable[..., Any], parameters: Mapping[str, Any], worker: str
    ) -> PrefectDaskFuture[Any]:
        future = self.client.submit(task, **parameters, workers=[worker], pure=False)
        return PrefectDaskFuture(wrapped_future=future, task_run_id=uuid4())


def family() -> set[int]:
    """Return the processes below this process."""
    return {process.pid for process in psutil.Process().children(recursive=True)}


def listening(pids: Sequence[int] = ()) -> set[int]:
    """Return the ports on which this process and the given processes listen."""
    processes = [psutil.Process(pid) for pid in (os.getpid(), *pids)]
    return {
        c.laddr.port for p in processes for c in p.net_connections("tcp") if c.status == "LISTEN"
    }


def wait_for_file(path: Path) -> State[str]:
    """Return once a file exists."""
    wait_for(path.exists)
    return Completed(data="opened")


def die() -> None:
    """End the calling process."""
    kill(os.getpid())


def noted_death(folder: Path) -> None:
    """Note each start in a folder, and die."""
    folder.mkdir(exist_ok=True)
    (folder / str(os.getpid())).touch()
    die()


def die_unless(path: Path) -> State[str]:
    """Die in the first call only."""
    if not path.exists():
        path.touch()
        die()
    return Completed(data="alive")


def meet(folder: Path, number: int, n: int) -> State[int]:
    """Return once this number of calls has begun."""
    (folder / str(number)).touch()
    wait_for(lambda: len(list(folder.iterdir())) >= n)
    return Completed(data=number)
