"""Faults of disks, databases and buckets: results equal the results without any cache."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from uuid import uuid4

import pytest
from services.faulty_bucket import FaultyProxy, faulty_bucket
from sqlalchemy import update
from studies import context_of, draw, evaluate, outcome, store_of

from prefect_tune.optimizers import Evaluation
from prefect_tune.storage import records
from prefect_tune.storage import waiting as outage
from prefect_tune.storage.artifacts import MemoryTier, StoreAddress
from prefect_tune.storage.inspection import verify
from prefect_tune.storage.schema import store_table
from prefect_tune.storage.waiting import OUTAGE_VARIABLE, DiskFull, StoreLost
from prefect_tune.tasks.problem import StudyContext, open_store
from prefect_tune.tasks.trial.evaluate import run_trial

pytestmark = pytest.mark.slow


def result(evaluation: Evaluation) -> tuple:
    return evaluation.fold_losses, evaluation.predictions


def expected(context: StudyContext, seed: int = 3) -> tuple:
    return result(evaluate(replace(context, use_cache=False), draw(context, seed)))


@pytest.fixture
def context(tmp_path) -> StudyContext:
    context = context_of(tmp_path)
    store_of(context).memory = MemoryTier(0)
    return context


@contextmanager
def in_bucket(folder: Path) -> Iterator[tuple[FaultyProxy, StudyContext]]:
    """Return a study with its store in a bucket, and the proxy in front of the bucket."""
    with faulty_bucket() as proxy, pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(folder))  # where copies of its data go
        address = StoreAddress(f"s3://bucket/{uuid4().hex}", f"sqlite:///{folder}/index.sqlite")
        context = context_of(folder, address=address)
        store_of(context).memory = MemoryTier(0)
        yield proxy, context
        open_store(address).close()
        open_store.cache_clear()


def test_unusable_cache_changes_no_result(context, caplog) -> None:
    unhurt = expected(context)
    cache = Path(store_of(context).files.path("cache"))
    cache.write_text("in the way")
    assert result(evaluate(context, draw(context, 3))) == unhurt
    assert "was not cached" in caplog.text
    cache.unlink()
    assert result(evaluate(context, draw(context, 3))) == unhurt
    assert verify(store_of(context)).is_sound
    shutil.rmtree(cache)
    cache.write_text("in the way")
    assert result(evaluate(context, draw(context, 3))) == unhurt


def test_run_ends_if_records_cannot_be_written(context) -> None:
    records = Path(store_of(context).files.path("records"))
    records.rename(records.with_name("moved"))
    records.write_text("in the way")
    with pytest.raises(StoreLost, match="records/"):
        outcome(context, draw(context, 3))


@pytest.mark.full
def test_trial_waits_for_an_unreachable_bucket(tmp_path, monkeypatch, caplog) -> None:
    """An hour passes until the bucket is back."""
    with in_bucket(tmp_path) as (proxy, context):
        unhurt = expected(context)
        passed, sleep = [0.0], outage.sleep

        def come_back(seconds: float) -> None:
            passed[0], proxy.fault = 3600.0, ""
            sleep(seconds)

        monkeypatch.setattr(outage, "sleep", come_back)
        monkeypatch.setattr(outage, "monotonic", lambda: monotonic() + passed[0])
        proxy.fault = "away"
        came = evaluate(context, draw(context, 3))
        assert passed == [3600.0]
        assert result(came) == unhurt
        assert came.cost_seconds < 3600.0
        proxy.fault = "errors"
        other = result(evaluate(context, draw(context, 4)))
        assert "was not cached" in caplog.text
        proxy.fault = ""
        assert other == expected(context, 4)
        assert not verify(store_of(context)).damaged


def test_worker_that_lost_the_store_returns_no_trial_result(context, monkeypatch) -> None:
    monkeypatch.setenv(OUTAGE_VARIABLE, "0")
    query, nowhere = draw(context, 3).to_json(), "postgresql+psycopg://me@127.0.0.1:9/index"
    away = replace(context, store=replace(context.store, database=nowhere))
    came = run_trial(away, query)
    assert (came.evaluation, came.failure) == (None, None)
    assert "connection" in came.lost
    with store_of(context).database.write() as connection:
        connection.execute(update(store_table).values(schema=99))
    open_store.cache_clear()
    assert "newer version" in run_trial(context, query).lost  # which is not waited for
    open_store.cache_clear()


def test_records_leave_the_last_gigabyte_free_and_a_study_can_resume(context, monkeypatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(records, "FREE_BYTES_KEPT", shutil.disk_usage("/").total * 10)
        with pytest.raises(DiskFull, match="GB left"):
            evaluate(context, draw(context, 3))  # and not a failed trial
        assert run_trial(context, draw(context, 3).to_json()).is_lost_to_all
    assert store_of(context).records.used_by("test") == []
    assert store_of(context).index.journal.unfinished() == []
    assert result(evaluate(context, draw(context, 3))) == expected(context)
    assert verify(store_of(context)).is_sound
