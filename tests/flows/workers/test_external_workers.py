"""A Dask scheduler with external workers, which join, are checked, die and leave."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import distributed
import pytest
from external_clusters import ExternalCluster, external_cluster
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
from prefect_tune.tasks.trial.evaluate import INDEX_MACHINE, worker_environment

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("server")]
_FOLDERS = (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))
TESTS = os.pathsep.join(filter(None, _FOLDERS))
"""For processes that import them, and the product from where this one does."""
OTHER_LIBRARY = """
import sklearn
sklearn.__version__ = "0.1"
"""


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> StudyContext:
    return context_of(tmp_path_factory.mktemp("quick"))


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExternalCluster]:
    with external_cluster(tmp_path_factory.mktemp("dask"), PYTHONPATH=TESTS) as external:
        yield external


@pytest.fixture
def external(scheduler: ExternalCluster) -> Iterator[ExternalCluster]:
    """The scheduler, without workers."""
    yield scheduler
    scheduler.stop(scheduler.processes[1:])
    with distributed.Client(scheduler.address, set_as_default=False) as client:
        wait_for(lambda: not client.nthreads())


def test_trial_of_a_killed_worker_is_repeated_on_a_newly_joined_worker(
    external, quick, gate
) -> None:
    """Each thread of any worker is a slot, with or without a nanny."""
    first = external.start_worker("--no-nanny", "--nthreads", "2")
    context = gate.before(quick)

    def body(trials: DaskTrials) -> None:
        start(trials, context, 0, 1, report="trial")
        assert not trials.has_room()
        sandboxes = gate.arrived(2)
        external.start_worker("--nanny", "--nthreads", "2")
        wait_for(lambda: trials.has_room() and trials.n_slots == 4)
        external.stop([first])
        lost = collected(trials, 2)
        assert all(e.outcome is None for e in lost)
        wait_for(lambda: not any(map(is_alive, sandboxes)))
        assert trials.n_slots == 2
        start(trials, context, 0, 1, report="trial")
        gate.arrived(2, without=sandboxes)
        gate.open()
        assert all(e.outcome and e.outcome.evaluation for e in collected(trials, 2))

    in_flow(context, body, scheduler=external.address)


def test_scheduler_without_suitable_workers_is_refused(external, monkeypatch, tmp_path) -> None:
    given = {"data": str(write_table(tmp_path)), "target": "target", "trials": 1}
    given |= {"dask": external.address, "store": str(tmp_path / "store")}
    with monkeypatch.context() as patched:
        patched.setattr(clusters, "_WORKER_SECONDS", 0.1)
        with pytest.raises(BadInput, check=lambda e: e.option == "dask"):
            tune(**given)
    (tmp_path / "sitecustomize.py").write_text(OTHER_LIBRARY)
    external.start_worker("--no-nanny", PYTHONPATH=os.pathsep.join([str(tmp_path), TESTS]))
    monkeypatch.setattr(clusters, "_WORKER_SECONDS", 120)
    with pytest.raises(BadInput, match="scikit-learn"):
        tune(**given)


def test_worker_of_another_machine_is_refused_if_the_index_is_a_local_file(quick) -> None:
    ours = worker_environment(quick)
    answers = {"tcp://elsewhere": {**ours, INDEX_MACHINE: "another boot"}}
    client = SimpleNamespace(run=lambda *_, **__: answers)
    with pytest.raises(BadInput, match="--database"):
        WorkerCheck("tcp://here", quick, ours)(client)


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


def test_killed_flow_leaves_no_trial_running(external, gate, tmp_path, server, home) -> None:
    worker = external.start_worker("--no-nanny", "--nthreads", "2")
    env = {**environment(home, server), "PYTHONPATH": TESTS}
    command = [sys.executable, "-c", FLOW, str(tmp_path), external.address]
    with subprocess.Popen(command, env=env) as flow:
        try:
            sandboxes = gate.arrived(2)
        finally:
            flow.kill()
    wait_for(lambda: not any(map(is_alive, sandboxes)))
    assert worker.poll() is None


@contextmanager
def joined(external: ExternalCluster, context: StudyContext) -> Iterator[tuple[WorkerPool, list]]:
    """A pool of all accepted workers, and the notes about them."""
    notes: list[str] = []
    with distributed.Client(external.address, set_as_default=False) as client:
        client.wait_for_workers(1, timeout=240)
        ours = worker_environment(context)
        check = WorkerCheck(external.address, context, ours)
        workers = Workers(client, check=check, note=notes.append)
        workers.check_all()
        try:
            yield WorkerPool(PlainRunner(client), None, workers), notes
        finally:
            workers.close()


def n_slots(pool: WorkerPool) -> int:
    """Return the number of slots after an update."""
    pool.workers.update(at_once=True)
    return pool.n_slots


def test_joining_workers_are_checked_and_unfit_workers_reported_once(
    external, quick, monkeypatch
) -> None:
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.0)
    checks, check = [], WorkerCheck.__call__

    def checked(*given: object) -> list[str]:
        checks.append(given)
        return check(*given)  # type: ignore[arg-type]

    external.start_worker("--no-nanny", "--nthreads", "1")
    with joined(external, quick) as (pool, notes):
        assert n_slots(pool) == 1
        external.start_worker("--nanny", "--nthreads", "2")
        wait_for(lambda: n_slots(pool) == 3)
        external.start_worker("--no-nanny", PREFECT_TUNE_SIGNING_KEY="another")
        wait_for(lambda: n_slots(pool) and any("signing key" in note for note in notes))
        monkeypatch.setattr(WorkerCheck, "__call__", checked)
        wait_for(lambda: n_slots(pool) == 3 and len(checks) >= 3)
        for words in ("signing key", "joined; 2 workers in total"):
            assert len([note for note in notes if words in note]) == 1, notes
        used = {pool.address_of(pool.submit(os.getpid, {})) for _ in range(9)}
        assert used == set(pool.workers.threads)


def test_tasks_of_a_dead_worker_are_returned_and_not_restarted_by_dask(
    external, quick, tmp_path, monkeypatch
) -> None:
    external.start_worker("--nanny", "--nthreads", "1")
    with joined(external, quick) as (pool, notes):
        tasks: module.RunningTasks[str] = module.RunningTasks(pool)
        tasks.submit("dies", noted_death, {"folder": tmp_path / "starts"})
        (ended,) = wait_for(lambda: list(tasks.collect(0.1)))
        assert (ended.state, ended.fault) == (None, "")
        wait_for(lambda: n_slots(pool) == 1)  # its nanny has started another
        assert len(list((tmp_path / "starts").iterdir())) == 1
        tasks.submit("has a result", os.getpid, {})
        (task,) = tasks
        wait_for(task.future.wrapped_future.done)
        (pid,) = pool.client.run(os.getpid).values()
        kill(pid)
        wait_for(lambda: task.worker not in pool.client.nthreads())
        (ended,) = wait_for(lambda: list(tasks.collect(0.1)))
        assert (ended.state, ended.fault) == (None, "")
        monkeypatch.setattr(module, "_WAIT_SECONDS", 0.0)
        external.stop(external.processes[1:])
        with pytest.raises(NoWorkers, match="no usable worker"):
            wait_for(lambda: n_slots(pool) < 0)
        assert "1 worker gone; 0 workers remaining" in notes
