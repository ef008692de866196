"""A server's process is told apart from others, and its port and note are found again."""

import os
import subprocess
import sys

import psutil
import pytest
from processes import environment, wait_for

from prefect_tune.deployments.server.process import (
    ServerProcess,
    noted_server,
    running_server,
    stop_server,
)
from prefect_tune.storage.lease import process_start


def this_process(started: float | None = None) -> ServerProcess:
    started = process_start(os.getpid()) if started is None else started
    return ServerProcess(os.getpid(), started, "http://127.0.0.1:4242/api")


def test_a_process_is_found_by_its_id_and_start() -> None:
    assert this_process().find() == psutil.Process()
    assert this_process().port == 4242


def test_another_process_of_that_id_is_not_taken_for_it() -> None:
    assert this_process(started=1.0).find() is None


def test_a_note_that_cannot_be_read_is_none(tmp_path) -> None:
    assert noted_server(tmp_path) is None
    (tmp_path / "server.json").write_text('{"pid": 1')
    assert noted_server(tmp_path) is None
    assert running_server(tmp_path) is None


def test_a_step_of_the_clock_makes_no_server_another_one(monkeypatch) -> None:
    noted, create_time = this_process(), psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: create_time(self) - 5)
    assert noted.find() is not None


STARTER = """
import sys
from pathlib import Path
from prefect_tune.deployments.server.process import start_server

start_server(Path(sys.argv[1]))
sys.stdin.read()
"""


@pytest.mark.timeout(50)
def test_a_server_that_its_parent_does_not_look_after_is_stopped_at_once(tmp_path) -> None:
    folder = tmp_path / "server"
    folder.mkdir(mode=0o700)
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTER, folder], env=environment(tmp_path), stdin=subprocess.PIPE
    )
    try:
        server = wait_for(lambda: noted_server(folder))
        stop_server(folder)
        assert psutil.Process(server.pid).status() == psutil.STATUS_ZOMBIE
    finally:
        parent.communicate()
