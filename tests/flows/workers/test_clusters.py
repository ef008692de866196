"""Clusters of a flow: listening ports, restored settings, and shutdown."""

import os

import pytest
from other_user import run_as_other_user
from pools import family, listening, local_pool
from processes import environment, run_python

from prefect_tune.flows.workers.clusters import local_cluster

pytestmark = pytest.mark.slow

PROGRAM = """
import logging, sys
import dask, distributed, psutil
from prefect_tune.flows.tune import tune

def state():
    log = logging.getLogger("distributed")
    # Dask leaves folders of clusters there that another cluster outlived.
    path = [entry for entry in sys.path if "dask-scratch-space/" not in entry]
    ports = {c.laddr.port for c in psutil.Process().net_connections() if c.status == "LISTEN"}
    levels = [log.level, *(h.level for h in log.handlers)]
    return repr([dask.config.config, levels, path, sorted(ports)])

dask.config.set({"distributed.scheduler.allowed-failures": 7})
options = {"processes": False, "dashboard_address": ":0"}
with distributed.LocalCluster(1, **options) as cluster, distributed.Client(cluster) as client:
    before = state()
    summary = tune(sys.argv[1], target="target", trials=3, workers=2, store=sys.argv[2],
                   method="random", ensemble="single", folds=2)
    assert state() == before, (state(), before)
    assert distributed.default_client() is client
    assert client.submit(sum, [1, 2], pure=False).result(timeout=200) == 3
    print(summary["state"], summary["n_failed"])
"""


def test_dask_settings_of_a_program_are_restored(tmp_path, server, home) -> None:
    table = tmp_path / "table.csv"
    table.write_text("x,target\n" + "".join(f"{i},{i % 2}\n" for i in range(100)))
    said = run_python(PROGRAM, table, tmp_path / "store", env=environment(home, server))
    assert said.splitlines()[-1] == "complete 0"


RUN_CODE = """
for protocol, security in {"tcp": None, "tls": distributed.Security.temporary()}.items():
    address = sys.argv[1].replace("tls://", f"{protocol}://")
    try:
        with distributed.Client(address, security=security, timeout=3) as client:
            print("ran as", client.submit(os.getuid).result(timeout=5))
    except (OSError, TimeoutError) as error:
        print("refused", protocol, repr(error))
"""


def test_ports_of_worker_processes_refuse_clients_without_a_key() -> None:
    before, family_before = listening(), family()
    with local_pool(6) as pool:
        addresses = pool.client.nthreads()
        pids = pool.client.run(os.getpid).values()
        assert len(addresses) == 2
        for address in (pool.client.scheduler.address, *addresses):
            imports = "import os, sys, distributed"
            said = run_as_other_user(imports, RUN_CODE, address).splitlines()
            assert [line.split()[0] for line in said] == ["refused", "refused"], said
        assert len(listening([*pids]) - before) == 3  # scheduler and two workers, and no pages
    assert (listening(), family() - family_before) == (before, set())


def test_in_process_cluster_opens_no_port_and_is_removed() -> None:
    before, family_before = listening(), family()
    with local_cluster(4) as (cluster, processes):
        assert processes is None
        assert cluster.scheduler_address.startswith("inproc://")
        assert (listening(), family()) == (before, family_before)
        assert cluster.scheduler.worker_ttl is None  # or a clock that is set would end workers
