"""Nobody without the cluster's key gets in, on any port."""

import os
import socket
import ssl
from contextlib import ExitStack

import distributed
import psutil
import pytest
from other_user import run_as_other_user

from prefect_tune.flows.workers.local_workers import local_cluster, local_settings

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


def test_another_user_runs_no_code_on_the_scheduler_and_its_nodes(cluster) -> None:
    nanny = cluster.workers[0]
    for address in (cluster.scheduler_address, nanny.address, nanny.worker_address):
        said = run_as_other_user("import os, sys, distributed", RUN_CODE, address).splitlines()
        assert len(said) == 2
        assert all(line.startswith("refused") for line in said), said


@pytest.mark.usefixtures("cluster")
def test_no_port_answers_who_has_no_key(ports_before) -> None:
    ports = listening_ports() - ports_before
    assert len(ports) >= 3  # scheduler, nanny, worker
    assert {answer(port, tls=tls) for port in ports for tls in (False, True)} == {b""}


def test_its_own_client_is_let_in_and_so_is_a_worker_that_comes_back(cluster) -> None:
    with distributed.Client(cluster) as client:
        ((address, pid),) = client.run(os.getpid).items()
        assert address.startswith("tls://")
        client.restart_workers([address], timeout=60)
        client.wait_for_workers(1, timeout=60)
        ((address, other),) = client.run(os.getpid).items()
        assert other != pid
        assert address.startswith("tls://")
