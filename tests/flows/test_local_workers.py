"""Local worker processes, forked from one that has imported everything."""

import os
import signal
import sys

import distributed
import pytest
from processes import wait_for

from prefect_tune.flows.local_workers import local_cluster, local_settings


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are spawned")
def test_a_worker_that_comes_back_is_forked_like_the_first() -> None:
    with local_settings(), local_cluster(1) as cluster, distributed.Client(cluster) as client:
        (pid,), (parent,) = client.run(os.getpid).values(), client.run(os.getppid).values()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: pid not in client.run(os.getpid, on_error="ignore").values())
        client.wait_for_workers(1, timeout=60)
        assert list(client.run(os.getppid).values()) == [parent]
