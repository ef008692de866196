"""Processes of a study: private temporary files, ports that are closed, no main module."""

import os
import socket
import ssl
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from multiprocessing import spawn
from pathlib import Path

import psutil
import pytest
from other_user import NOBODY, run_as_other_user
from processes import kill

from prefect_tune.flows.workers.local_workers import (
    local_cluster,
    local_settings,
    skip_main_module,
)
from prefect_tune.storage.local_files import make_own

PROGRAM = (
    "from prefect_tune.flows.workers.scratch import scratch_folder\n"
    "print(scratch_folder(), flush=True)\n"
)


def start(tmp: Path, rest: str = "input()") -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + rest],
        env={**os.environ, "TMPDIR": str(tmp)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


@pytest.mark.slow
def test_it_goes_with_its_process_and_what_a_killed_one_left_is_swept(tmp_path) -> None:
    killed, left = start(tmp_path)
    running, used = start(tmp_path)
    assert left.is_dir()
    assert used.is_dir()
    kill(killed.pid)
    killed.communicate()
    assert left.is_dir()
    other, its = start(tmp_path, "")
    other.communicate()
    assert not left.exists()
    assert not its.exists()
    assert used.is_dir()
    running.communicate("\n")
    assert not used.exists()


@pytest.mark.slow
def test_others_cannot_enter_it(tmp_path) -> None:
    process, folder = start(tmp_path)
    assert [p.stat().st_mode & 0o777 for p in (folder, folder.parent)] == [0o700, 0o700]
    process.communicate("\n")


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_a_folder_that_another_user_made_first_is_refused() -> None:
    with tempfile.TemporaryDirectory() as everyone:
        Path(everyone).chmod(0o777)
        folder, link = Path(everyone, "folder"), Path(everyone, "link")
        run_as_other_user("import sys, os", "os.mkdir(sys.argv[1])", folder)
        run_as_other_user("import sys, os", "os.symlink(*sys.argv[1:])", "/root", link)
        assert folder.stat().st_uid == NOBODY
        for path in (folder, link):
            with pytest.raises(PermissionError, match="another user"):
                make_own(path)


@pytest.mark.slow
def test_one_of_ours_that_is_wider_is_closed(tmp_path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    make_own(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_only_workers_are_spared() -> None:
    before = spawn.get_preparation_data("Process-1")
    skip_main_module()
    assert spawn.get_preparation_data("Process-1") == before
    told = spawn.get_preparation_data("Dask Worker process (from Nanny)")
    assert {name for name in before if name not in told} <= {
        "init_main_from_name",
        "init_main_from_path",
    }
    assert not [name for name in told if name.startswith("init_main")]


RUN_CODE = """
for protocol, security in {"tcp": None, "tls": distributed.Security.temporary()}.items():
    address = sys.argv[1].replace("tls://", f"{protocol}://")
    try:
        with distributed.Client(address, security=security, timeout=3) as client:
            print("ran as", client.submit(os.getuid).result(timeout=5))
    except (OSError, TimeoutError) as error:
        print("refused", protocol, repr(error))
"""


@pytest.fixture(scope="module")
def ports_before() -> set[int]:
    return listening_ports()


@pytest.fixture(scope="module")
def cluster(ports_before):  # noqa: ARG001 - of servers of other tests
    with local_settings(), local_cluster(1) as cluster:
        yield cluster


def listening_ports() -> set[int]:
    me = psutil.Process()
    family = [me, *me.children(recursive=True)]
    return {c.laddr.port for p in family for c in p.net_connections("tcp") if c.status == "LISTEN"}


def answer(port: int, *, tls: bool) -> bytes:
    """What comes back for a request, with a certificate of no use if need be."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with ExitStack() as opened:
        connection = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        try:
            if tls:
                connection = opened.enter_context(context.wrap_socket(connection))
            connection.sendall(b"GET /info/main/workers.html HTTP/1.1\r\nHost: x\r\n\r\n")
            return connection.recv(1_000)
        except (ssl.SSLError, ConnectionError):
            return b""


@pytest.mark.slow
def test_another_user_runs_no_code_on_the_scheduler_and_its_nodes(cluster) -> None:
    nanny = cluster.workers[0]
    for address in (cluster.scheduler_address, nanny.address, nanny.worker_address):
        said = run_as_other_user("import os, sys, distributed", RUN_CODE, address).splitlines()
        assert len(said) == 2
        assert all(line.startswith("refused") for line in said), said


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_no_port_answers_who_has_no_key(ports_before) -> None:
    ports = listening_ports() - ports_before
    assert len(ports) >= 3  # scheduler, nanny, worker
    assert {answer(port, tls=tls) for port in ports for tls in (False, True)} == {b""}
