"""A Dask scheduler with workers that others started, which come, are checked, die and leave."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep

import distributed
import pytest
from external_clusters import ExternalCluster, cluster, external_cluster
from inputs import write_table
from pools import Gate, PlainRunner, collected, in_flow, noted_death, start
from processes import environment, is_alive, kill, wait_for
from studies import context_of

from prefect_tune.flows.tune import tune
from prefect_tune.flows.workers import clusters
from prefect_tune.flows.workers import pool as module
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.flows.workers.pool import NoWorkers, WorkerCheck, WorkerPool, Workers
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.evaluate import worker_environment

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("server")]
_FOLDERS = (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))
TESTS = os.pathsep.join(filter(None, _FOLDERS))
"""For processes that import them, and the product from where this one does."""
OTHER_LIBRARY = """
import sklearn
sklearn.__version__ = "0.1"
from prefect_tune.tasks.trial import evaluate
readiness.sklearn = sklearn
"""


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> StudyContext:
    return context_of(tmp_path_factory.mktemp("quick"))


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


@pytest.fixture
def external(tmp_path: Path) -> Iterator[ExternalCluster]:
    with external_cluster(tmp_path / "dask", PYTHONPATH=TESTS) as external:
        yield external


@pytest.mark.parametrize("nanny", ["--nanny", "--no-nanny"])
def test_each_thread_of_any_worker_is_a_slot(external, quick, gate, nanny) -> None:
    external.start_worker(nanny, "--nthreads", "3")
    context = gate.before(quick)

    def body(trials: DaskTrials) -> None:
        assert trials.n_slots == 3
        start(trials, context, 0, 1, 2, report="trial")
        assert not trials.has_room()
        assert len(gate.arrived(3)) == 3
        gate.open()
        assert all(e.outcome and e.outcome.evaluation for e in collected(trials, 3))

    in_flow(context, body, scheduler=external.address)


def test_trials_of_a_killed_worker_run_on_a_worker_that_has_joined(external, quick, gate) -> None:
    first = external.start_worker("--no-nanny", "--nthreads", "2")
    context = gate.before(quick)

    def body(trials: DaskTrials) -> None:
        start(trials, context, 0, 1, report="trial")
        sandboxes = gate.arrived(2)
        external.start_worker("--nanny", "--nthreads", "2")
        wait_for(lambda: trials.has_room() and trials.n_slots == 4)
        first.kill()
        first.wait()
        lost = collected(trials, 2)
        assert all(e.outcome is None for e in lost)
        wait_for(lambda: not any(map(is_alive, sandboxes)), 10)
        assert trials.n_slots == 2
        start(trials, context, 0, 1, report="trial")
        gate.arrived(2, without=sandboxes)
        gate.open()
        assert all(e.outcome and e.outcome.evaluation for e in collected(trials, 2))

    in_flow(context, body, scheduler=external.address)


def test_a_scheduler_without_workers_is_named(external, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(clusters, "_WORKER_SECONDS", 1)
    given = {"data": str(write_table(tmp_path)), "target": "target", "trials": 1}
    with pytest.raises(BadInput, match="no scheduler"):
        tune(**given, dask=external.address, store=str(tmp_path / "store"))


@pytest.mark.parametrize(
    ("code", "variables", "named"),
    [
        (OTHER_LIBRARY, {}, "scikit-learn 0.1"),
        ("", {"PREFECT_TUNE_SIGNING_KEY": "another"}, "signing key"),
    ],
)
def test_a_worker_that_cannot_work_for_us_is_named(tmp_path, code, variables, named) -> None:
    (tmp_path / "dask").mkdir()
    (tmp_path / "dask" / "sitecustomize.py").write_text(code)
    if code:
        variables = {"PYTHONPATH": os.pathsep.join([str(tmp_path / "dask"), TESTS])}
    given = {"data": str(write_table(tmp_path)), "target": "target", "trials": 1}
    with (
        cluster(tmp_path / "dask", "--no-nanny", n_workers=1, **variables) as address,
        pytest.raises(BadInput, match=named),
    ):
        tune(**given, dask=address, store=str(tmp_path / "store"))


FLOW = """
import sys
from pathlib import Path

from pools import Gate, in_flow, start
from studies import context_of

folder = Path(sys.argv[1])
context = Gate(folder / "gate").before(context_of(folder))

def body(trials):
    start(trials, context, 0, 1)
    while True:
        trials.collect(1.0)

in_flow(context, body, scheduler=sys.argv[2])
"""


def test_after_a_killed_flow_and_scheduler_no_trial_stays(  # noqa: PLR0917
    external, quick, gate, tmp_path, server, home
) -> None:
    worker = external.start_worker("--no-nanny", "--nthreads", "3")
    env = {**environment(home, server), "PYTHONPATH": TESTS}
    command = [sys.executable, "-c", FLOW, str(tmp_path), external.address]
    with subprocess.Popen(command, env=env) as flow:
        sandboxes = gate.arrived(2)
        flow.kill()
    wait_for(lambda: not any(map(is_alive, sandboxes)), 10)
    assert worker.poll() is None
    context = gate.before(quick)

    def body(trials: DaskTrials) -> list[int]:
        start(trials, context, 0, 1, 2, report="trial")
        arrived = gate.arrived(3, without=sandboxes)
        external.processes[0].kill()
        wait_for(lambda: not any(map(is_alive, arrived)), 60)
        return arrived

    with pytest.raises(Exception):  # noqa: B017, PT011 - Dask's own
        in_flow(context, body, scheduler=external.address)


Joined = Callable[..., tuple[WorkerPool, list[str]]]


@contextmanager
def joined(external: ExternalCluster, context: StudyContext) -> Iterator[tuple[WorkerPool, list]]:
    """A pool of all workers that have passed, and the notes on them."""
    notes: list[str] = []
    with distributed.Client(external.address, set_as_default=False) as client:
        client.wait_for_workers(1, timeout=120)
        ours = worker_environment(context)
        check = WorkerCheck(external.address, context, ours)
        workers = Workers(client, check=check, note=notes.append)
        workers.check_all()
        try:
            yield WorkerPool(PlainRunner(client), None, workers), notes
        finally:
            workers.close()


def looked(pool: WorkerPool) -> int:
    """Slots after a look."""
    pool.workers.update(at_once=True)
    return pool.n_slots


def test_joining_workers_are_checked_and_unfit_workers_named_once(
    external, quick, monkeypatch
) -> None:
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.5)
    external.start_worker("--no-nanny", "--nthreads", "1")
    with joined(external, quick) as (pool, notes):
        assert looked(pool) == 1
        external.start_worker("--no-nanny", PREFECT_TUNE_SIGNING_KEY="another")
        wait_for(lambda: looked(pool) and any("signing key" in note for note in notes))
        external.start_worker("--nanny", "--nthreads", "2")
        wait_for(lambda: looked(pool) == 3)
        sleep(1.5)
        assert looked(pool) == 3
        assert len([note for note in notes if "signing key" in note]) == 1
        assert len([note for note in notes if "joined; 2 workers in total" in note]) == 1
        used = {pool.address_of(pool.submit(os.getpid, {})) for _ in range(9)}
        assert used == set(pool.workers.threads)
        left = pool.workers.refuse(next(iter(used)))
        assert (left, len(pool.workers.threads)) == (1, 1)


def test_a_task_of_a_dead_worker_is_given_back_and_not_restarted_by_dask(
    external, quick, tmp_path, monkeypatch
) -> None:
    external.start_worker("--nanny", "--nthreads", "1")
    with joined(external, quick) as (pool, notes):
        tasks: module.RunningTasks[str] = module.RunningTasks(pool)
        tasks.submit("dies", noted_death, {"folder": tmp_path / "starts"})
        (ended,) = wait_for(lambda: list(tasks.collect(0.1)), 60)
        assert (ended.state, ended.fault) == (None, "")
        wait_for(lambda: looked(pool) == 1)  # its nanny has started another
        assert len(list((tmp_path / "starts").iterdir())) == 1
        monkeypatch.setattr(module, "_WAIT_SECONDS", 0.5)
        external.stop_worker(external.processes[1])
        with pytest.raises(NoWorkers, match="no worker"):
            wait_for(lambda: looked(pool) < 0, 60)
        assert "1 worker gone; 0 workers remaining" in notes


def test_a_result_lost_with_a_worker_counts_as_a_death(external, quick) -> None:
    external.start_worker("--no-nanny", "--nthreads", "1")
    external.start_worker("--no-nanny", "--nthreads", "1")
    with joined(external, quick) as (pool, _):
        wait_for(lambda: looked(pool) == 2)
        tasks: module.RunningTasks[int] = module.RunningTasks(pool)
        for number in range(2):
            tasks.submit(number, os.getpid, {})
        futures = [task.future.wrapped_future for task in tasks]
        wait_for(lambda: all(future.done() for future in futures))
        pids = pool.client.run(os.getpid)
        kill(pids[next(iter(tasks)).worker])
        wait_for(lambda: looked(pool) == 1)
        ended = sorted(tasks.collect(1.0), key=lambda e: e.task.subject)
        assert [(e.state is None, e.fault) for e in ended] == [(True, ""), (False, "")]
