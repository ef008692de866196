"""Local worker processes, forked from one that has imported everything."""

import asyncio
import os
import signal
import subprocess
import sys
from time import sleep
from typing import Any

import distributed
import pytest
from distributed.core import Status
from pools import started_child
from processes import is_alive, wait_for

from prefect_tune.flows.workers.fork_server import end_stopped_fork_server
from prefect_tune.flows.workers.local_workers import local_cluster, local_settings
from prefect_tune.tasks.worker.dask_runner import end_worker


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are spawned")
def test_a_worker_that_comes_back_is_forked_like_the_first() -> None:
    with local_settings(), local_cluster(1) as cluster, distributed.Client(cluster) as client:
        (pid,), (parent,) = client.run(os.getpid).values(), client.run(os.getppid).values()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: pid not in client.run(os.getpid, on_error="ignore").values())
        client.wait_for_workers(1, timeout=60)
        assert list(client.run(os.getppid).values()) == [parent]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are spawned")
def test_a_stopped_fork_server_is_replaced_and_does_not_hold_up_the_end() -> None:
    with local_settings(), local_cluster(1) as cluster, distributed.Client(cluster) as client:
        assert not end_stopped_fork_server()  # as it runs
        (pid,), (parent,) = client.run(os.getpid).values(), client.run(os.getppid).values()
        os.kill(parent, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        wait_for(end_stopped_fork_server)
        wait_for(lambda: pid not in client.run(os.getpid, on_error="ignore").values())
        client.wait_for_workers(1, timeout=60)
        (other,) = client.run(os.getppid).values()
        assert other != parent
        os.kill(other, signal.SIGSTOP)
    assert not is_alive(other)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes have all cores")
def test_there_are_as_many_workers_as_cores_that_the_process_may_use() -> None:
    program = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from prefect_tune.flows.workers.local_workers import local_cluster\n"
        "if __name__ == '__main__':\n"
        "    with local_cluster(None) as cluster: print(len(cluster.workers))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == "1\n"


def test_a_worker_is_ended_with_all_it_started_and_one_that_took_its_place_is_left_alone() -> None:
    with local_settings(), local_cluster(1) as cluster, distributed.Client(cluster) as client:
        ((address, pid),) = client.run(os.getpid).items()
        child = client.submit(started_child, pure=False).result()
        busy = client.submit(sleep, 1000, pure=False)
        wait_for(lambda: client.processing()[address])
        busy.cancel(force=True)
        client.run(end_worker, address, workers=[address], nanny=True)
        wait_for(lambda: address not in client.processing())
        wait_for(lambda: not is_alive(child), 30)
        client.wait_for_workers(1, timeout=60)
        ((other_address, other_pid),) = client.run(os.getpid).items()
        assert other_pid != pid
        client.run(end_worker, address, workers=[other_address], nanny=True)
        assert client.run(os.getpid) == {other_address: other_pid}


def test_a_worker_that_its_nanny_has_not_heard_of_yet_is_ended_once_it_has() -> None:
    async def unheard(dask_worker: Any) -> None:
        process = dask_worker.process
        process.status = Status.starting
        process.running.clear()

        def hear() -> None:
            process.status = Status.running
            process.running.set()

        asyncio.get_running_loop().call_later(0.3, hear)

    with local_settings(), local_cluster(1) as cluster, distributed.Client(cluster) as client:
        ((address, pid),) = client.run(os.getpid).items()
        client.run(unheard, nanny=True)
        client.run(end_worker, address, workers=[address], nanny=True)
        wait_for(lambda: pid not in client.run(os.getpid, on_error="ignore").values(), 30)


def test_the_scheduler_gives_no_worker_up_because_the_clock_was_set() -> None:
    with local_settings(), local_cluster(1) as cluster:
        assert cluster.scheduler.worker_ttl is None
