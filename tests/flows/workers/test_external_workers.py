"""A Dask scheduler with workers that others started, which come, are checked, die and leave."""

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import distributed
import psutil
import pytest
from external_clusters import ExternalCluster, cluster, external_cluster
from inputs import write_table
from pools import PlainRunner, noted_death, pause
from processes import runs_trial, started, wait_for
from studies import context_of
from user_spaces import SLEEPING

from prefect_tune.flows.tuning import tune
from prefect_tune.flows.workers import external_workers
from prefect_tune.flows.workers import roster as module
from prefect_tune.flows.workers.external_workers import WorkerCheck, _check_environment
from prefect_tune.flows.workers.nanny_reports import enforce_limits
from prefect_tune.flows.workers.roster import NoWorkers, Roster
from prefect_tune.flows.workers.worker_pool import WorkerPool
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.problem import StudyContext, TrialLimits, algorithm_ids
from prefect_tune.tasks.worker import limit_keeper
from prefect_tune.tasks.worker.readiness import INDEX_MACHINE, worker_environment

NO_DATABASE = """
from prefect_tune.storage import opening

def refused(*_):
    raise opening.DatabaseRefused("the database of the study: here it cannot be reached")

opening._database = refused
"""


GATED = SLEEPING.replace(
    "sleep({seconds})",
    "Path({gate!r}, 'begun').touch()\n        "
    "while not Path({gate!r}, 'open').exists():\n            sleep(0.05)",
)


@pytest.mark.usefixtures("server")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"nanny": None}, "--nanny"),
        ({"nthreads": 2}, "--nthreads 1"),
        ({"memory_limit": 10**9}, "--trial-memory 2 GB"),
    ],
)
def test_a_worker_that_cannot_keep_limits_is_named(changed, named) -> None:
    worker = {"nanny": "tcp://n", "nthreads": 1, "memory_limit": 0}
    limits = TrialLimits(60, 2 * 10**9)
    external_workers._check_process("tcp://w", worker, limits)
    with pytest.raises(BadInput, match=f"worker tcp://w .*{named}"):
        external_workers._check_process("tcp://w", worker | changed, limits)


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "variables", "named"),
    [
        ((), {"PREFECT_TUNE_SIGNING_KEY": "another"}, "signing key"),
        (("--preload", "no_database"), {}, "cannot be reached"),
    ],
)
def test_a_worker_that_cannot_work_for_us_is_named(tmp_path, options, variables, named) -> None:
    (tmp_path / "dask").mkdir()
    (tmp_path / "dask" / "no_database.py").write_text(NO_DATABASE)
    given = {"data": str(write_table(tmp_path)), "target": "target", "trials": 1}
    usual = ("--nanny", "--nthreads", "1", *options)
    with (
        cluster(tmp_path / "dask", *usual, n_workers=1, **variables) as address,
        pytest.raises(BadInput, match=named),
    ):
        tune(**given, dask=address, store=str(tmp_path / "store"))


@pytest.mark.usefixtures("server")
def test_a_study_continues_with_new_workers_when_its_worker_leaves(tmp_path, server) -> None:
    gate, home = tmp_path / "gate", tmp_path / "home"
    gate.mkdir()
    (tmp_path / "space.py").write_text(GATED.format(gate=str(gate)))
    options = ("--target", "target", "--study", "s", "--trials", 4, "--method", "random")
    command = ("run", write_table(tmp_path), *options, "--space", f"{tmp_path}/space.py:space")
    with external_cluster(tmp_path / "dask", PREFECT_TUNE_HOME=str(home)) as external:
        first = external.start_worker()
        where = ("--dask", external.address, "--json")
        with started(*command, *where, home=home, server=server) as process:
            wait_for((gate / "begun").exists)
            external.start_worker("--nanny", "--nthreads", "2")
            external.start_worker()
            said = read_until(process.stderr, "joined; ")
            external.stop_worker(first)
            said += read_until(process.stderr, "was requeued")
            (gate / "open").touch()
            printed, rest = process.communicate(timeout=240)
    said += rest
    assert process.returncode == 0, said
    summary = json.loads(printed)
    assert (summary["state"], summary["n_trials"], summary["n_failed"]) == ("complete", 4, 0)
    assert said.count("has 2 threads") == 1


def read_until(stream: IO[str], text: str) -> str:
    """The lines until one with a text."""
    read = ""
    for line in stream:
        read += line
        if text in line:
            return read
    raise AssertionError(read)


@pytest.mark.usefixtures("server")
@pytest.mark.slow
def test_a_worker_that_goes_away_while_it_is_asked_is_named(monkeypatch) -> None:
    class Client:
        def scheduler_info(self, n_workers: int) -> dict[str, Any]:
            assert n_workers == -1  # all of them
            return {"workers": {"tcp://here": {}}}

    monkeypatch.setattr(external_workers, "_LISTED_SECONDS", 0.0)
    assert external_workers._describe(Client(), ["tcp://here"]) == {"tcp://here": {}}
    with pytest.raises(BadInput, match="tcp://gone"):
        external_workers._describe(Client(), ["tcp://here", "tcp://gone"])


_FOLDERS = (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))
TESTS = os.pathsep.join(filter(None, _FOLDERS))
"""For processes that import them, and the product from where this one does."""


Joined = Callable[..., tuple[WorkerPool, list[str]]]


@pytest.fixture
def external(tmp_path) -> Iterator[ExternalCluster]:
    with external_cluster(tmp_path / "dask", PYTHONPATH=TESTS) as external:
        external.start_worker()
        yield external


@pytest.fixture
def joined(external: ExternalCluster, tmp_path: Path) -> Iterator[Joined]:
    """Makes a pool of all workers that have passed, and the notes on them."""
    notes: list[str] = []
    context = context_of(tmp_path / "study")
    with distributed.Client(external.address) as client:
        client.wait_for_workers(1, timeout=120)

        def join(most: float = float("inf")) -> tuple[WorkerPool, list[str]]:
            check = WorkerCheck(
                external.address, context, TrialLimits(60), worker_environment(context)
            )
            roster = Roster(client, check, notes.append)
            roster.check_all()
            return WorkerPool(PlainRunner(client), most, roster=roster), notes

        yield join


def pids_of(pool: WorkerPool, n: int) -> set[int]:
    """The processes that so many tasks ran in, one by one."""
    pids = set()
    for _ in range(n):
        future = pool.submit(os.getpid, {})
        wait_for(lambda f=future: f.wrapped_future.done())
        pids.add(future.wrapped_future.result())
    return pids


@pytest.mark.slow
@pytest.mark.full
def test_who_joins_is_checked_and_used_and_who_cannot_work_is_named_once(external, joined) -> None:
    pool, notes = joined()
    assert (pool.count_slots(), pool.n_slots) == (1, 1)
    external.start_worker("--no-nanny", "--nthreads", "1")
    external.start_worker()
    wait_for(lambda: (pool.count_slots(), len(notes)) == (2, 2))
    assert len([note for note in notes if "has no nanny" in note]) == 1
    assert len([note for note in notes if "joined; 2 workers in total" in note]) == 1
    (refused,) = (
        address
        for address, worker in pool.client.scheduler_info(n_workers=-1)["workers"].items()
        if not worker["nanny"]
    )
    (pid,) = pool.client.run(os.getpid, workers=[refused]).values()
    busy = pool.submit(pause, {"seconds": 5})
    assert pid not in pids_of(pool, 5)
    pool.end([busy])
    for _ in range(5):
        pool.count_slots()
        pause(0.1)
    assert len([note for note in notes if "has no nanny" in note]) == 1


@pytest.mark.slow
@pytest.mark.full
def test_a_refused_worker_is_checked_again_and_its_reason_reported_once(
    external, joined, monkeypatch
) -> None:
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.0)
    pool, notes = joined()
    is_away, n_checks = True, 0
    passes = WorkerCheck.__call__

    def check(self: WorkerCheck, client: distributed.Client, address: str) -> None:
        nonlocal n_checks
        n_checks += 1
        if is_away:
            raise BadInput("its store is away")
        passes(self, client, address)

    monkeypatch.setattr(WorkerCheck, "__call__", check)
    external.start_worker()
    wait_for(lambda: pool.count_slots() and n_checks >= 3)
    is_away = False
    wait_for(lambda: pool.count_slots() == 2)
    assert len([note for note in notes if "its store is away" in note]) == 1


@pytest.mark.slow
@pytest.mark.full
def test_a_pool_of_one_worker_ends_when_that_has_left(external, joined, monkeypatch) -> None:
    pool, _ = joined()
    external.start_worker()
    wait_for(lambda: pool.count_slots() == 2)
    monkeypatch.setattr(module, "_RETURN_SECONDS", 0.5)
    pool.prepare(os.getpid)
    with pool.reserved() as one:
        wait_for(one.count_slots)
        (pid,) = pids_of(one, 1)
        families = {psutil.Process(p.pid): p for p in external.processes[1:]}
        external.stop_worker(
            next(p for f, p in families.items() if pid in {c.pid for c in f.children(True)})
        )
        with pytest.raises(NoWorkers, match="left"):
            wait_for(lambda: one.count_slots() < 0, 60)
    assert pool.n_reserved == 1


@pytest.mark.slow
@pytest.mark.full
def test_a_worker_that_is_benched_is_used_no_more(external, joined) -> None:
    pool, _ = joined()
    external.start_worker()
    wait_for(lambda: pool.count_slots() == 2)
    first, second = pool.client.run(os.getpid).items()
    assert pool.bench(first[0]) == 1
    assert pool.count_slots() == 1
    assert pids_of(pool, 3) == {second[1]}
    assert pool.bench(second[0]) == 0


@pytest.mark.slow
@pytest.mark.full
def test_a_task_waits_for_an_ended_worker_and_not_behind_work_of_others(
    external, joined, tmp_path
) -> None:
    starts, end = tmp_path / "starts", tmp_path / "end"

    def work_of_others() -> None:
        from time import sleep

        with starts.open("a") as file:
            file.write("started\n")
        while not end.exists():
            sleep(0.1)

    external.start_worker()
    pool, _ = joined(most=1)
    wait_for(lambda: len(pool.client.scheduler_info(n_workers=-1)["workers"]) == 2)
    with distributed.Client(external.address) as other:
        theirs = other.submit(work_of_others)
        wait_for(starts.exists)
        wait_for(lambda: len(pool._roster.addresses) == 2 or pool.count_slots() < 0)
        for _ in range(2):
            busy = pool.submit(pause, {"seconds": 60})
            key = busy.wrapped_future.key
            wait_for(lambda k=key: k in chain(*pool.client.processing().values()))
            pool.end([busy])
            next_one = pool.submit(os.getpid, {})
            wait_for(next_one.wrapped_future.done, 60)
        end.touch()
        theirs.result(timeout=60)
    assert starts.read_text() == "started\n"


@pytest.mark.slow
@pytest.mark.full
def test_who_leaves_is_noticed_and_without_workers_it_is_waited_but_not_for_ever(
    external, joined, monkeypatch
) -> None:
    pool, notes = joined()
    monkeypatch.setattr(module, "_RETURN_SECONDS", 0.5)
    (worker,) = external.processes[1:]
    external.stop_worker(worker)
    wait_for(lambda: (pool.count_slots(), pool.n_slots) == (0, 0))
    wait_for(lambda: pool.count_slots() == 0 and len(notes) == 2)
    assert "1 worker left; 0 remaining" in notes
    assert any("waiting for a worker" in note for note in notes)
    external.start_worker()
    wait_for(lambda: pool.count_slots() == 1)
    (worker,) = external.processes[1:]
    external.stop_worker(worker)
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.5)
    with pytest.raises(NoWorkers, match="no worker"):
        wait_for(lambda: pool.count_slots() < 0, 60)
    assert len([note for note in notes if "waiting for a worker" in note]) == 2


@pytest.mark.slow
@pytest.mark.full
def test_a_task_whose_worker_dies_by_it_is_not_started_again_by_dask(
    external, joined, tmp_path
) -> None:
    pool, notes = joined()
    for _ in range(2):
        external.start_worker()
    wait_for(lambda: pool.count_slots() == 3)
    future = pool.submit(noted_death, {"folder": tmp_path / "starts"})

    former = pool._placed[future]
    # By the time that it is back, Dask would have started the task elsewhere.
    wait_for(lambda: pool.count_slots() == 3 and former not in pool._roster.addresses)
    pool.cancel_stranded(future)
    assert future.wrapped_future.cancelled()
    assert pids_of(pool, 3)
    assert len(list((tmp_path / "starts").iterdir())) == 1
    assert not [note for note in notes if "left" in note]


FLOW = """
import sys
from uuid import uuid4

import distributed
from pools import noted
from prefect_tune.flows.workers.nanny_reports import enforce_limits
from prefect_tune.tasks.problem import TrialLimits

flow_run = uuid4()
with (
    distributed.Client(sys.argv[1]) as client,
    enforce_limits(client, flow_run, TrialLimits(seconds=1000)),
):
    client.submit(noted, uuid4(), flow_run, 1000, pure=False).result()
"""


@pytest.fixture(scope="module")
def external_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExternalCluster]:
    folder = tmp_path_factory.mktemp("dask")
    with external_cluster(folder, PYTHONPATH=TESTS) as external_of_all:
        external_of_all.start_worker()
        yield external_of_all


@pytest.fixture
def client(external_of_all: ExternalCluster) -> Iterator[distributed.Client]:
    with distributed.Client(external_of_all.address) as client:
        client.wait_for_workers(1, timeout=60)
        yield client


@contextmanager
def killed_flow(external_of_all: ExternalCluster, client: distributed.Client) -> Iterator[None]:
    """A flow that was killed while its trial ran."""
    flow = subprocess.Popen(
        [sys.executable, "-c", FLOW, external_of_all.address],
        env={**os.environ, "PYTHONPATH": TESTS},
    )
    try:
        wait_for(lambda: any(map(runs_trial, client.run(os.getpid, on_error="ignore").values())))
    finally:
        flow.send_signal(signal.SIGKILL)
        flow.wait()
    yield


def marks(client: distributed.Client) -> set[str]:
    """Names of plugins and topics of ours, on the scheduler and on the nannies."""

    def of_scheduler(dask_scheduler: Any) -> list[str]:
        return [*dask_scheduler.nanny_plugins, *dask_scheduler._broker._topics]

    def of_nanny(dask_worker: Any) -> list[str]:
        return list(dask_worker.plugins)

    found = client.run_on_scheduler(of_scheduler)
    for names in client.run(of_nanny, nanny=True).values():
        found += names
    return {name for name in found if "prefect-tune" in name}


@pytest.fixture
def hurried(client: distributed.Client) -> Iterator[None]:
    """Nannies that look for their flow ten times a second."""

    def follow_each(seconds: float) -> None:
        limit_keeper._FOLLOW_SECONDS = seconds

    usual = limit_keeper._FOLLOW_SECONDS
    client.run(follow_each, 0.1, nanny=True)
    yield
    client.run(follow_each, usual, nanny=True)


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
def test_what_a_killed_flow_has_left_goes_with_its_trial(external_of_all, client) -> None:
    (pid,) = client.run(os.getpid).values()
    with killed_flow(external_of_all, client):
        assert marks(client)
        wait_for(lambda: not marks(client), 60)
        wait_for(lambda: list(client.run(os.getpid, on_error="ignore").values()) not in ([], [pid]))


@pytest.mark.slow
@pytest.mark.full
def test_the_next_flow_takes_back_what_a_killed_one_has_left(external_of_all, client) -> None:
    with killed_flow(external_of_all, client):
        (left,) = marks(client)
        wait_for(lambda: is_alone(client))
        with enforce_limits(client, uuid4(), TrialLimits(60)):
            (own,) = marks(client)
            assert own != left
        assert marks(client) == set()


def is_alone(client: distributed.Client) -> bool:
    """Whether the scheduler has no other client."""

    def clients(dask_scheduler: Any) -> list[str]:
        return [name for name in dask_scheduler.clients if name.startswith("Client-")]

    return len(client.run_on_scheduler(clients)) == 1


BOOT_ID = "/proc/sys/kernel/random/boot_id"


WORKER = """
import pickle, sys
from prefect_tune.tasks.worker.readiness import worker_environment
context = pickle.loads(sys.stdin.buffer.read())
sys.stdout.buffer.write(pickle.dumps(worker_environment(context)))
"""


def environment_elsewhere(context: StudyContext, folder: Path) -> Any:
    """What a worker answers that runs on a machine of another boot and name."""
    (folder / "boot_id").write_text("11111111-2222-3333-4444-555555555555\n")
    other = f'mount --bind {folder}/boot_id {BOOT_ID} && hostname elsewhere && exec "$@"'
    command = ["unshare", "--mount", "--uts", "sh", "-c", other, "sh", sys.executable, "-c", WORKER]
    answer = subprocess.run(command, input=pickle.dumps(context), capture_output=True, check=True)
    return pickle.loads(answer.stdout)


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path(BOOT_ID).exists(), reason="only root can play another machine"
)
@pytest.mark.slow
def test_a_worker_of_another_machine_is_refused_where_the_index_is_a_file(tmp_path) -> None:
    context = context_of(tmp_path)
    there, here = environment_elsewhere(context, tmp_path), worker_environment(context)
    with pytest.raises(
        BadInput,
        match=r"elsewhere, .* SQLite",
    ):
        _check_environment("tcp://w:1", there, here)
    _check_environment("tcp://w:1", worker_environment(context), here)


@pytest.mark.slow
def test_a_worker_that_cannot_load_lightgbm_is_refused_with_the_remedy(tmp_path, request) -> None:
    small = context_of(tmp_path)
    space = space_named("modern")
    problem = replace(small.problem, space="modern", space_digest=space.digest, algorithms=())
    context = replace(small, problem=problem)
    here = worker_environment(context)
    request.getfixturevalue("without_libgomp")
    with pytest.raises(BadInput) as answered:
        worker_environment(context)
    answer = pickle.loads(pickle.dumps(answered.value))
    with pytest.raises(BadInput, match=r"lightgbm.*libgomp\.so\.1"):
        _check_environment("tcp://w:1", answer, here)
    models = tuple(a for a in space.steps[-1].algorithms if a.id != "lightgbm")
    other = replace(space, steps=(*space.steps[:-1], replace(space.steps[-1], algorithms=models)))
    problem = replace(problem, space_digest=other.digest, algorithms=algorithm_ids(other))
    assert worker_environment(replace(context, problem=problem))["space"] == other.digest


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path(BOOT_ID).exists(), reason="only root can play another machine"
)
@pytest.mark.slow
def test_containers_of_one_machine_are_one_machine(tmp_path) -> None:
    here = worker_environment(context_of(tmp_path))
    container = replace(here[INDEX_MACHINE], name="container")
    _check_environment("tcp://w:1", {**here, INDEX_MACHINE: container}, here)
