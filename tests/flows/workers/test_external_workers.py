"""A Dask scheduler with workers that others started, in processes of their own."""

import json
from pathlib import Path
from typing import IO, Any

import distributed
import pytest
from external_clusters import cluster, external_cluster
from inputs import QUICK, QUICK_OPTIONS, table, write_table
from processes import started, wait_for

from prefect_tune.flows.study.study import StudyFailed
from prefect_tune.flows.tuning import tune
from prefect_tune.flows.workers import clusters, external_workers
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.problem import TrialLimits

NO_DATABASE = """
from prefect_tune.storage import opening

def refused(*_):
    raise opening.DatabaseRefused("the database of the study: here it cannot be reached")

opening._database = refused
"""

pytestmark = pytest.mark.usefixtures("server")


def test_an_external_cluster_evaluates_the_trials(tmp_path) -> None:
    with cluster(tmp_path / "dask", "--nanny", "--nthreads", "1") as address:
        summary = tune(
            data=str(write_table(tmp_path)),
            target="target",
            trials=5,
            dask=address,
            store=str(tmp_path / "store"),
            study="far",
            **QUICK,
        )
    assert (summary["state"], summary["n_trials"], summary["n_failed"]) == ("complete", 5, 0)


def test_work_of_others_on_a_shared_cluster_is_left_alone(tmp_path) -> None:
    starts, end = tmp_path / "starts", tmp_path / "end"

    def work_of_others() -> None:
        from time import sleep

        with starts.open("a") as file:
            file.write("started\n")
        while not end.exists():
            sleep(0.1)

    table(20_000).to_parquet(tmp_path / "large.parquet", index=False)
    with (
        cluster(tmp_path / "dask", "--nanny", "--nthreads", "1") as address,
        distributed.Client(address) as other,
    ):
        future = other.submit(work_of_others)
        wait_for(starts.exists)
        with pytest.raises(StudyFailed):  # its only trial is cut
            tune(
                data=str(tmp_path / "large.parquet"),
                target="target",
                budget="0.5s",
                workers=1,
                **QUICK,
                dask=address,
                store=str(tmp_path / "store"),
            )
        end.touch()
        future.result(timeout=60)
    assert starts.read_text() == "started\n"


@pytest.mark.parametrize(
    ("options", "variables", "message"),
    [
        (
            ("--no-nanny", "--nthreads", "1"),
            {},
            r"worker tcp://.* has no nanny.*start it with --nanny",
        ),
        (("--nanny", "--nthreads", "2"), {}, r"worker tcp://.* has 2 threads.*--nthreads 1"),
        (
            ("--nanny", "--nthreads", "1"),
            {"PREFECT_TUNE_SIGNING_KEY": "another"},
            "has signing key with the fingerprint .+, the flow has",
        ),
        (
            ("--nanny", "--nthreads", "1", "--preload", "no_database"),
            {},
            "cannot run this study: the database .* here it cannot be reached",
        ),
    ],
)
def test_a_worker_that_cannot_work_for_us_is_named(tmp_path, options, variables, message) -> None:
    (tmp_path / "dask").mkdir()
    (tmp_path / "dask" / "no_database.py").write_text(NO_DATABASE)
    with (
        cluster(tmp_path / "dask", *options, n_workers=1, **variables) as address,
        pytest.raises(BadInput, match=message),
    ):
        tune(
            data=str(write_table(tmp_path)),
            target="target",
            trials=1,
            dask=address,
            store=str(tmp_path / "store"),
        )


def test_a_study_goes_on_with_who_joins_when_its_worker_leaves(tmp_path, server) -> None:
    data = tmp_path / "slow.parquet"
    table(10_000).to_parquet(data, index=False)
    options = (*QUICK_OPTIONS, "--target", "target", "--study", "s", "--trials", 40)
    home = tmp_path / "home"
    environment = {"PREFECT_TUNE_HOME": str(home)}
    with external_cluster(tmp_path / "dask", **environment) as external:
        first = external.start_worker()
        command = ("run", data, *options, "--dask", external.address, "--json")
        with started(*command, home=home, server=server) as process:
            wait_for(lambda: n_told(home) >= 1)
            external.start_worker("--nanny", "--nthreads", "2")
            external.start_worker()
            assert process.stderr is not None
            said = read_until(process.stderr, "has joined; 2 workers in all")
            external.stop_worker(first)
            printed, rest = process.communicate(timeout=240)
    said += rest
    assert process.returncode == 0, said
    summary = json.loads(printed)
    assert (summary["state"], summary["n_trials"], summary["n_failed"]) == ("complete", 40, 0)
    assert said.count("has 2 threads") == 1
    assert "left; the trial waits again" in said


def n_told(home: Path) -> int:
    """Trials of the study that have ended."""
    if not (home / "store").exists():
        return 0
    ledger = Ledger(ArtifactStore(StoreAddress(str(home / "store"))).database)
    return sum(t["state"] in ("complete", "failed") for t in ledger.trials("s"))


def read_until(stream: IO[str], text: str) -> str:
    """The lines until one with a text."""
    read = ""
    for line in stream:
        read += line
        if text in line:
            return read
    raise AssertionError(read)


def test_a_scheduler_that_cannot_be_reached_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(clusters, "_CONNECT_SECONDS", 1)
    with pytest.raises(BadInput, match="no scheduler with a worker answers"):
        tune(
            data=str(write_table(tmp_path)),
            target="target",
            trials=1,
            dask="tcp://127.0.0.1:9",
            store=str(tmp_path / "store"),
        )


@pytest.mark.parametrize(
    ("memory_limit", "memory_bytes"), [(0, 2 * 10**9), (10**9, 10**9), (10**9, None)]
)
def test_a_worker_with_memory_enough_for_a_trial_is_used(memory_limit, memory_bytes) -> None:
    worker = {"nanny": "tcp://n", "nthreads": 1, "memory_limit": memory_limit}
    external_workers._check_process("tcp://w", worker, TrialLimits(60, memory_bytes))


def test_a_worker_with_less_memory_than_a_trial_may_take_is_named() -> None:
    worker = {"nanny": "tcp://n", "nthreads": 1, "memory_limit": 10**9}
    with pytest.raises(
        BadInput,
        match=r"worker tcp://w has a memory limit of 1 GB, below --trial-memory 2 GB; start",
    ):
        external_workers._check_process("tcp://w", worker, TrialLimits(60, 2 * 10**9))


def test_a_worker_that_goes_away_while_it_is_asked_is_named(monkeypatch) -> None:
    class Client:
        def scheduler_info(self, n_workers: int) -> dict[str, Any]:
            assert n_workers == -1  # all of them
            return {"workers": {"tcp://here": {}}}

    monkeypatch.setattr(external_workers, "_LISTED_SECONDS", 0.0)
    assert external_workers._describe(Client(), ["tcp://here"]) == {"tcp://here": {}}
    with pytest.raises(BadInput, match="worker tcp://gone disconnected while it was checked"):
        external_workers._describe(Client(), ["tcp://here", "tcp://gone"])
