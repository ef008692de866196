"""The log of workers' starts: what a process writes to standard error until its start has ended."""

import subprocess
import sys

import pytest

from prefect_tune.tasks.worker import start_log
from prefect_tune.tasks.worker.start_log import LOG_VARIABLE, log_path, log_size, log_text

PROGRAM = """
import os, sys
from prefect_tune.tasks.worker.start_log import begin_log, dask_setup
begin_log()
begin_log()  # does nothing
os.write(2, b"as it started\\n")
dask_setup(None)
dask_setup(None)
os.write(2, b"once it was up\\n")
"""


def test_there_is_no_text_without_a_log(tmp_path) -> None:
    assert (log_size(tmp_path), log_text(tmp_path, 0)) == (0, "")


def test_the_text_of_a_start_does_not_contain_that_of_earlier_ones(tmp_path) -> None:
    log_path(tmp_path).write_text("an earlier start\n")
    since = log_size(tmp_path)
    assert log_text(tmp_path, since) == ""
    with log_path(tmp_path).open("a") as log:
        log.write("Traceback:\n\n   MemoryError  \n")
    assert log_text(tmp_path, since) == "Traceback: | MemoryError"


def test_of_much_text_the_last_lines_are_returned(tmp_path) -> None:
    log_path(tmp_path).write_text("".join(f"line {n}\n" for n in range(1000)))
    assert log_text(tmp_path, 0) == " | ".join(f"line {n}" for n in range(995, 1000))
    log_path(tmp_path).write_text("x" * 10_000 + "end")
    text = log_text(tmp_path, 0)
    assert (len(text), text[-4:]) == (start_log._MOST_BYTES, "xend")


def test_text_that_is_not_utf_8_is_returned(tmp_path) -> None:
    log_path(tmp_path).write_bytes(b"caf\xe9\n")
    assert log_text(tmp_path, 0) == "caf�"


@pytest.mark.parametrize("has_log", [True, False])
def test_standard_error_goes_to_the_log_until_the_worker_is_up(tmp_path, has_log) -> None:
    variables = {LOG_VARIABLE: str(log_path(tmp_path))} if has_log else {}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True, check=True
    )
    assert log_text(tmp_path, 0) == ("as it started" if has_log else "")
    printed = "once it was up\n"
    assert done.stderr == (printed if has_log else f"as it started\n{printed}")


def test_a_log_that_cannot_be_opened_leaves_standard_error_as_it_is(tmp_path) -> None:
    variables = {LOG_VARIABLE: str(tmp_path / "missing" / "starts.log")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True, check=True
    )
    assert done.stderr == "as it started\nonce it was up\n"
