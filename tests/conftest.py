"""Settings of the whole test run, and the shared Prefect server."""

import os

# Read when Prefect is first imported: its console is not ours to test.
os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
os.environ.setdefault("PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL", "WARNING")
os.environ.setdefault("DO_NOT_TRACK", "1")
# Read when numpy is first imported: threads of BLAS would wait for cores that other tests use, and
# what takes 0.3 s takes 80 s then.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import signal
import subprocess
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from finished.ended import Ended

# In the background or by `nohup` signals are ignored, and programs would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

pytest.register_assert_rewrite("contracts", "services", "studies", "processes")
settings.register_profile("here", derandomize=True, deadline=None)
settings.load_profile("here")


SERVICES = {"server", "postgres", "bucket"}
"""Fixtures that start something outside of the test process."""
STARTS = ((subprocess.Popen, "__init__"), (BaseProcess, "start"), (os, "fork"), (os, "system"))
"""What starts a process."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with services as slow, and run long files first to keep all workers busy."""
    for item in items:
        if not SERVICES.isdisjoint(item.fixturenames):
            item.add_marker("slow")
    tools = {item.path for item in items if item.get_closest_marker("tools")}
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in tools, item.path not in slow))


@pytest.fixture(autouse=True)
def _quick_tests_start_no_process(request: pytest.FixtureRequest) -> Iterator[None]:
    """Refuse to start a process in a quick test; fail the test even if it catches the error."""
    if any(map(request.node.get_closest_marker, ("slow", "full", "tools"))):
        yield
        return
    refused = []

    def refuse(*_: object, **__: object) -> None:
        refused.append(1)
        raise RuntimeError("a quick test starts a process; mark it with pytest.mark.slow")

    with pytest.MonkeyPatch.context() as patched:
        for place, name in STARTS:
            patched.setattr(place, name, refuse)
        yield
    assert not refused, "this test starts a process; mark it with pytest.mark.slow"


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home of the product for the whole run."""
    folder = tmp_path_factory.mktemp("home")
    os.environ["PREFECT_TUNE_HOME"] = str(folder)
    yield folder
    del os.environ["PREFECT_TUNE_HOME"]


@pytest.fixture(scope="session")
def server(home: Path) -> Iterator[str]:
    """The API URL of a real Prefect server, used by flows of the test process."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from processes import server_of

    from prefect_tune.deployments.server.embedded import local_server

    # The heartbeat of a flow run is waited for at its end, a second each time.
    with local_server() as url, temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        assert server_of(home)  # and thereby know its secret
        yield url


@pytest.fixture(scope="session")
def ended(tmp_path_factory: pytest.TempPathFactory) -> "Ended":
    """Two small finished studies, made without a server and never changed."""
    from finished.ended import Ended

    return Ended.in_folder(tmp_path_factory.mktemp("ended"))
