"""An index in a SQLite file is for processes of one machine: workers of others are refused."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from services import Postgres
from studies import context_of

from prefect_tune.flows.workers.external_workers import _check_environment
from prefect_tune.storage import StoreAddress
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.problem import StudyContext, open_store
from prefect_tune.tasks.worker.readiness import INDEX_MACHINE, worker_environment

BOOT_ID = "/proc/sys/kernel/random/boot_id"
WORKER = """
import pickle, sys
from prefect_tune.tasks.worker.readiness import worker_environment
context = pickle.loads(sys.stdin.buffer.read())
sys.stdout.buffer.write(pickle.dumps(worker_environment(context)))
"""

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path(BOOT_ID).exists(), reason="only root can play another machine"
)


def environment_elsewhere(context: StudyContext, folder: Path) -> Any:
    """What a worker answers that runs on a machine of another boot and name."""
    (folder / "boot_id").write_text("11111111-2222-3333-4444-555555555555\n")
    other = f'mount --bind {folder}/boot_id {BOOT_ID} && hostname elsewhere && exec "$@"'
    command = ["unshare", "--mount", "--uts", "sh", "-c", other, "sh", sys.executable, "-c", WORKER]
    answer = subprocess.run(command, input=pickle.dumps(context), capture_output=True, check=True)
    return pickle.loads(answer.stdout)


def test_a_worker_of_another_machine_is_refused_where_the_index_is_a_file(tmp_path) -> None:
    context = context_of(tmp_path)
    there, here = environment_elsewhere(context, tmp_path), worker_environment(context)
    with pytest.raises(
        BadInput,
        match=r"worker tcp://w:1 runs on elsewhere, .* a SQLite file, .* --database postgresql\+",
    ):
        _check_environment("tcp://w:1", there, here)
    _check_environment("tcp://w:1", worker_environment(context), here)


def test_a_worker_of_another_machine_is_used_where_the_index_is_a_server(tmp_path) -> None:
    server = Postgres(tmp_path / "postgres")
    try:
        address = StoreAddress(str(tmp_path / "store"), server.new_database())
        context = context_of(tmp_path, address=address)
        there = environment_elsewhere(context, tmp_path)
        assert there[INDEX_MACHINE] is None
        _check_environment("tcp://w:1", there, worker_environment(context))
    finally:
        open_store(address).close()
        server.stop()


def test_containers_of_one_machine_are_one_machine(tmp_path) -> None:
    here = worker_environment(context_of(tmp_path))
    container = replace(here[INDEX_MACHINE], name="container")
    _check_environment("tcp://w:1", {**here, INDEX_MACHINE: container}, here)
