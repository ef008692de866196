"""Nannies of real workers keep trials within limits, and report why a worker is gone."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

import distributed
import pytest
from pools import SERVED, SLEEP, client_of, noted, stepping, with_children
from processes import is_alive, wait_for

from prefect_tune.flows.workers import nanny_reports
from prefect_tune.flows.workers.nanny_reports import NannyReports, limits_kept
from prefect_tune.tasks.problem import TrialLimits
from prefect_tune.tasks.worker.limit_keeper import mark_of

LIMITS = TrialLimits(seconds=0.5)


@pytest.fixture(scope="module")
def client() -> Iterator[distributed.Client]:
    with client_of(1) as client:
        yield client


def test_the_worker_of_a_trial_over_its_time_is_killed_and_reported(client) -> None:
    flow_run_id, trial = uuid4(), uuid4()
    with limits_kept(client, flow_run_id, LIMITS) as reports:
        future = client.submit(noted, trial, flow_run_id, 1000, pure=False)
        reports.follow(trial, future)
        wait_for(future.done)
        report = reports.wait_for(trial)
        assert future.cancelled()  # or Dask would start it on another worker
    assert report is not None
    failure = report.failure
    assert (failure.kind, failure.step, failure.fold) == ("timeout", "fit model", 1)
    assert failure.message == "took more than 0.5 s (raise the limit with --trial-timeout)"
    assert failure.steps == (SERVED,)
    assert failure.cost_seconds > 0.5
    wait_for(lambda: list(client.processing()) not in ([], [report.worker]))


def test_the_wait_for_a_report_counts_from_when_the_worker_went(monkeypatch) -> None:
    """Of many that leave at once, the first is waited for and the others were, too."""
    monkeypatch.setattr(nanny_reports, "_REPORT_SECONDS", 1e9)
    reports, trial = NannyReports(), uuid4()
    reports.follow(trial, None)
    assert reports.wait_for(trial, monotonic() - 1e9) is None


def test_a_trial_may_have_less_time_than_the_nanny_allows_and_more(client) -> None:
    client.wait_for_workers(1, timeout=60)
    for limit, own in ((1000.0, 0.5), (0.2, 1.5)):
        flow_run_id, trial = uuid4(), uuid4()
        with limits_kept(client, flow_run_id, TrialLimits(limit)) as reports:
            future = client.submit(noted, trial, flow_run_id, 1000, own, pure=False)
            reports.follow(trial, future)
            wait_for(future.done)
            report = reports.wait_for(trial)
        assert report is not None
        assert (
            report.failure.message
            == f"took more than {own} s (raise the limit with --trial-timeout)"
        )
        wait_for(lambda report=report: list(client.processing()) not in ([], [report.worker]))


def test_a_worker_that_dies_of_itself_is_reported_with_where_its_trial_was(client) -> None:
    client.wait_for_workers(1, timeout=60)
    flow_run_id, trial = uuid4(), uuid4()
    with limits_kept(client, flow_run_id, LIMITS) as reports:
        future = client.submit(noted, trial, flow_run_id, -0.3, pure=False)
        reports.follow(trial, future)
        wait_for(future.done)
        report = reports.wait_for(trial)
    assert future.status in ("error", "cancelled")
    assert report is not None
    assert (report.failure.kind, report.failure.step) == ("crashed", "fit model")
    assert report.failure.steps == (SERVED,)


def test_trials_of_other_flow_runs_and_after_the_body_are_left_alone(client) -> None:
    client.wait_for_workers(1, timeout=60)
    ours, theirs = uuid4(), uuid4()
    with limits_kept(client, ours, LIMITS):
        client.submit(noted, uuid4(), theirs, 0.8, pure=False).result(timeout=60)
    client.submit(noted, uuid4(), ours, 0.8, pure=False).result(timeout=60)


def test_the_step_that_a_trial_is_at_is_reported_once(client) -> None:
    client.wait_for_workers(1, timeout=60)
    flow_run_id, trial = uuid4(), uuid4()
    with limits_kept(client, flow_run_id, TrialLimits(seconds=1000)) as reports:
        future = client.submit(noted, trial, flow_run_id, 2.0, pure=False)
        reports.follow(trial, future)
        since = monotonic()
        step = wait_for(lambda: reports.step_of(trial))
        assert (step.step, step.fold) == ("fit model", 1)
        assert since - 1.0 < step.started < monotonic()
        future.result(timeout=60)
        assert len(said_of(client, flow_run_id)) == 1
        reports.forget(trial)
        assert reports.step_of(trial) is None


def test_steps_that_change_quickly_are_reported_twice_a_second(client) -> None:
    flow_run_id, trial = uuid4(), uuid4()
    with limits_kept(client, flow_run_id, TrialLimits(seconds=1000)) as reports:
        future = client.submit(stepping, trial, flow_run_id, 2.0, pure=False)
        reports.follow(trial, future)
        since = monotonic()
        future.result(timeout=60)
        assert 1 <= len(said_of(client, flow_run_id)) <= 1 + 2 * (monotonic() - since)


def said_of(client: distributed.Client, flow_run_id: UUID) -> list[Any]:
    """All that nannies have said of the trials of a flow run."""
    return list(client.get_events(mark_of(str(flow_run_id), client.id)))


def test_without_a_report_none_is_waited_for_longer_than_a_moment(client, monkeypatch) -> None:
    monkeypatch.setattr(nanny_reports, "_REPORT_SECONDS", 0.01)
    reports, trial = NannyReports(), uuid4()
    reports.follow(trial, client.submit(int, pure=False))
    assert reports.wait_for(trial) is None


EATS = "import time; eaten = bytearray(b'x') * 550_000_000; time.sleep(1000)"


@pytest.mark.parametrize(
    ("kind", "code", "limits", "end"),
    [
        ("timeout", SLEEP, TrialLimits(seconds=1.5), ""),
        ("memory", EATS, TrialLimits(1000, 600_000_000), ""),  # not the worker alone
        ("crashed", SLEEP, TrialLimits(seconds=1000), "dies"),
    ],
)
def test_what_a_trial_has_started_is_counted_and_goes_with_its_worker(  # noqa: PLR0917
    client, tmp_path, kind, code, limits, end
) -> None:
    client.wait_for_workers(1, timeout=60)
    flow_run_id, trial = uuid4(), uuid4()
    with limits_kept(client, flow_run_id, limits) as reports:
        future = client.submit(with_children, trial, flow_run_id, tmp_path, code, end, pure=False)
        reports.follow(trial, future)
        wait_for(future.done)
        report = reports.wait_for(trial)
        assert report is not None
        assert report.failure.kind == kind
        wait_for(lambda: not alive(tmp_path), 10)
    assert len(list(tmp_path.iterdir())) == 3


def test_what_a_trial_has_left_goes_when_limits_are_no_longer_kept(client, tmp_path) -> None:
    client.wait_for_workers(1, timeout=60)
    flow_run_id = uuid4()
    with limits_kept(client, flow_run_id, TrialLimits(seconds=1000)):
        run = (uuid4(), flow_run_id, tmp_path, SLEEP, "returns")
        client.submit(with_children, *run, pure=False).result(timeout=60)
        assert len(alive(tmp_path)) == 3
    wait_for(lambda: not alive(tmp_path), 10)
    assert client.submit(int, pure=False).result(timeout=60) == 0


def alive(folder: Path) -> list[int]:
    """The processes noted in a folder that have not ended."""
    pids = [int(path.name) for path in folder.iterdir()]
    return [pid for pid in pids if is_alive(pid)]
