"""One thread, whichever libraries there are by then."""

import os
import subprocess
import sys

import pytest

from prefect_tune.tasks import threads
from prefect_tune.tasks.threads import one_thread

LATE = """
from threadpoolctl import threadpool_info
from prefect_tune.tasks.threads import one_thread

with one_thread():
    assert threadpool_info() == []
import numpy

def counts():
    return {library["num_threads"] for library in threadpool_info()}

before = counts()
assert before
with one_thread():
    assert counts() == {1}
assert counts() == before
"""


def test_a_library_that_was_imported_since_has_one_thread_too() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", LATE],
        env={**environment, "OPENBLAS_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_libraries_are_looked_for_again_only_when_modules_were_imported(monkeypatch) -> None:
    found = []

    class Looked(threads.ThreadpoolController):
        def __init__(self) -> None:
            found.append(len(sys.modules))
            super().__init__()

    monkeypatch.setattr(threads, "ThreadpoolController", Looked)
    threads._controller.cache_clear()
    for _ in range(3):
        with one_thread():
            pass
    assert len(found) == 1
    monkeypatch.setitem(sys.modules, "a_module_with_a_library", pytest)
    for _ in range(3):
        with one_thread():
            pass
    assert len(found) == 2
    threads._controller.cache_clear()
