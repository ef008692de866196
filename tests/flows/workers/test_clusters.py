"""Local workers that are up before their flow is."""

import distributed
import pytest
from prefect import flow
from studies import context_of

from prefect_tune.flows.workers.clusters import started_pool, workers_started_early
from prefect_tune.tasks.problem import TrialLimits

pytestmark = pytest.mark.usefixtures("server")

LIMITS = TrialLimits(seconds=60)


def test_a_flow_takes_the_workers_that_were_started_early_and_leaves_them_up(tmp_path) -> None:
    context = context_of(tmp_path)

    @flow
    def study() -> tuple[list[str], int]:
        with started_pool(context, LIMITS, None, None) as pool:
            return list(pool.client.scheduler_info(n_workers=-1)["workers"]), pool.n_slots

    with workers_started_early(1, None):
        first, second = study(), study()
        assert first == second
        assert first[1] == 1
    with pytest.raises((OSError, TimeoutError)):
        distributed.Client(first[0][0], security=distributed.Security.temporary(), timeout=1)


def test_nothing_is_started_early_where_a_scheduler_is_named(monkeypatch) -> None:
    monkeypatch.setattr("prefect_tune.flows.workers.clusters.local_cluster", None)
    with workers_started_early(1, "tcp://127.0.0.1:9"):
        pass
