"""A server's process is told apart from others, and its port and note are found again."""

import os

import psutil

from prefect_tune.deployments.server_process import ServerProcess, noted_server, running_server
from prefect_tune.storage.process_start import process_start


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
