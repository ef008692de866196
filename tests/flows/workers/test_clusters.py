"""Clusters of a flow: what they listen at, what they leave as it was, and how they end."""

import json
import logging
import os
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import dask
import distributed
import psutil
import pytest
from other_user import run_as_other_user
from pools import Gate, collected, die, family, in_flow, listening, local_pool, pause, start
from processes import is_alive, kill, run_python, wait_for
from studies import context_of

from prefect_tune.flows.workers.clusters import local_cluster
from prefect_tune.flows.workers.dask_trials import DaskTrials

pytestmark = pytest.mark.slow

PROGRAM = """
import json, logging, sys, threading
import dask, distributed, psutil
from prefect_tune.flows.tuning import tune

def works(client): return client.submit(sum, [1, 2]).result(timeout=60)
def state():
    log = logging.getLogger("distributed")
    return [dask.config.config, log.level, [h.level for h in log.handlers], sys.path]
def ports(): return {c.laddr.port for c in psutil.Process().net_connections() if c.status == "LISTEN"}

def during():
    with distributed.LocalCluster(1, processes=False, dashboard_address=None) as other:
        with distributed.Client(other, set_as_default=False) as theirs: done.append(works(theirs))

if __name__ == "__main__":
    dask.config.set({"distributed.scheduler.allowed-failures": 7})
    with distributed.LocalCluster(1, threads_per_worker=1, dashboard_address=None) as cluster:
        client, done = distributed.Client(cluster), []
        assert works(client) == 3
        before, open_before = repr(state()), ports()
        thread = threading.Timer(1.0, during)
        thread.start()
        summary = tune(sys.argv[1], target="target", trials=3, workers=int(sys.argv[2]),
                       store=sys.argv[3], method="random", ensemble="single", folds=2)
        thread.join()
        assert (repr(state()), ports()) == (before, open_before)
        assert distributed.default_client() is client
        assert works(client) == 3 and done == [3]
        print(summary["state"], summary["n_failed"], len(client.run_on_scheduler(tasks_of)))
"""
