"""Settings of the whole test run, and the one Prefect server that it shares."""

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
from collections.abc import Iterator
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


def is_slow(item: pytest.Item) -> bool:
    """Whether a test is marked so, or works with servers or with processes of the command."""
    helpers = {getattr(value, "__module__", "") for value in vars(item.module).values()}
    uses_processes = not helpers.isdisjoint({"processes", "services"})
    uses_services = not SERVICES.isdisjoint(item.fixturenames)
    return uses_services or uses_processes or item.get_closest_marker("slow") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `tests/run quick` leaves out, and put files of it first: the rest fills gaps."""
    slow = [item for item in items if is_slow(item)]
    for item in slow:
        item.add_marker("slow")
    files = {item.path for item in slow}
    items.sort(key=lambda item: item.path not in files)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home of the product's own for the whole run."""
    folder = tmp_path_factory.mktemp("home")
    os.environ["PREFECT_TUNE_HOME"] = str(folder)
    yield folder
    del os.environ["PREFECT_TUNE_HOME"]


@pytest.fixture(scope="session")
def server(home: Path) -> Iterator[str]:
    """The API URL of a real Prefect server; flows of the test process use it."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from processes import server_of

    from prefect_tune.deployments.server.embedded import local_server

    # The heartbeat of a flow run is waited for at its end, a second each time.
    with local_server() as url, temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        assert server_of(home)  # and thereby know its secret
        yield url


@pytest.fixture(scope="session")
def ended(tmp_path_factory: pytest.TempPathFactory) -> "Ended":
    """Two small studies that have ended, without a server; nobody changes them."""
    from finished.ended import Ended

    return Ended.in_folder(tmp_path_factory.mktemp("ended"))
