"""Faults of disks, databases and buckets: a trial's result is what it is with no cache at all."""

import logging
import multiprocessing
import resource
import shutil
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from uuid import uuid4

import pytest
from services import Postgres
from services.faulty_bucket import FaultyProxy, faulty_bucket
from sqlalchemy import update
from studies import context_of, draw, evaluate, outcome, store_of

from prefect_tune.optimizers import Evaluation
from prefect_tune.storage import artifacts, records
from prefect_tune.storage.artifacts import MemoryTier, StoreAddress
from prefect_tune.storage.database import BUSY_SECONDS
from prefect_tune.storage.inspection import verify
from prefect_tune.storage.schema import store_table
from prefect_tune.storage.waiting import OUTAGE_VARIABLE, DiskFull, StoreLost
from prefect_tune.tasks.problem import StudyContext, open_store
from prefect_tune.tasks.trial.evaluate import run_trial

pytestmark = pytest.mark.slow

AWAY_SECONDS = 6.0
SPAWN = multiprocessing.get_context("spawn")


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
    """A study whose store is in a bucket, and what lies before that."""
    with faulty_bucket() as proxy, pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(folder))  # where copies of its data go
        address = StoreAddress(f"s3://bucket/{uuid4().hex}", f"sqlite:///{folder}/index.sqlite")
        context = context_of(folder, address=address)
        store_of(context).memory = MemoryTier(0)
        yield proxy, context
        open_store(address).close()
        open_store.cache_clear()


def test_a_cache_that_cannot_be_written_changes_nothing(context, caplog) -> None:
    cache = Path(store_of(context).files.path("cache"))
    cache.write_text("in the way")
    with caplog.at_level(logging.WARNING):
        assert result(evaluate(context, draw(context, 3))) == expected(context)
    assert "is not kept" in caplog.text
    cache.unlink()
    assert verify(store_of(context)).is_sound


def test_a_cache_that_is_replaced_by_a_file_while_it_is_read_changes_nothing(context) -> None:
    evaluate(context, draw(context, 3))
    cache = Path(store_of(context).files.path("cache"))
    shutil.rmtree(cache)
    cache.write_text("in the way")
    assert result(evaluate(context, draw(context, 3))) == expected(context)


def test_a_clock_that_is_set_back_keeps_the_order_of_use(context, monkeypatch) -> None:
    from prefect_tune.storage import usage

    store = store_of(context)
    evaluate(context, draw(context, 3))
    before = {e.key: e.last_used for e in store.index.entries(_keys(context)).values()}
    monkeypatch.setattr(usage, "time", lambda: 1000.0)
    evaluate(context, draw(context, 3))
    after = {e.key: e.last_used for e in store.index.entries(_keys(context)).values()}
    assert all(after[key] >= before[key] > 1000.0 for key in before)


def _keys(context: StudyContext) -> list[str]:
    return [s.key for s in evaluate(context, draw(context, 3)).steps]


def evaluate_with_a_full_disk(context: StudyContext, out) -> None:
    """No file of the cache may become larger than 100 bytes, as on a full disk."""
    artifacts.FREE_BYTES_KEPT = 0
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    publish = store_of(context).files.publish

    def publish_on_a_full_disk(folder, *args, **options):
        if folder.startswith("cache/"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        try:
            return publish(folder, *args, **options)
        finally:
            resource.setrlimit(
                resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )

    store_of(context).files.publish = publish_on_a_full_disk
    came = outcome(context, draw(context, 3))
    out.put((result(came), store_of(context).index.totals().count))


def test_a_disk_that_fills_while_writing_changes_nothing(context) -> None:
    out = SPAWN.Queue()
    process = SPAWN.Process(target=evaluate_with_a_full_disk, args=(context, out))
    process.start()
    came, count = out.get(timeout=120)
    process.join()
    assert came == expected(context)
    assert count == 0
    assert verify(store_of(context)).is_sound
    assert not any(Path(store_of(context).files.path("tmp")).glob("*"))


LOCKED_SECONDS = 7.0
"""Longer than the five seconds after which SQLite's driver gives up by itself."""


def test_a_database_that_is_locked_for_a_while_is_waited_for(context) -> None:
    assert BUSY_SECONDS > 30
    path = store_of(context).database.url.removeprefix("sqlite:///")
    locked = threading.Event()

    def lock() -> None:
        connection = sqlite3.connect(path)
        connection.execute("BEGIN EXCLUSIVE")
        locked.set()
        sleep(LOCKED_SECONDS)
        connection.rollback()
        connection.close()

    thread = threading.Thread(target=lock)
    thread.start()
    locked.wait()
    came = evaluate(context, draw(context, 3))
    thread.join()
    assert result(came) == expected(context)


@pytest.mark.full
def test_a_postgres_that_is_restarted_is_waited_for(tmp_path, monkeypatch) -> None:
    server = Postgres(tmp_path / "postgres")
    address = StoreAddress(str(tmp_path / "store"), server.new_database())
    context = context_of(tmp_path, address=address)
    admit, n_restarts = store_of(context)._admit, []

    def admit_after_a_restart(*given, **options):
        if len(n_restarts) < 2:
            server.restart()  # all connections are gone, in the middle of a trial
            n_restarts.append(1)
        return admit(*given, **options)

    monkeypatch.setattr(store_of(context), "_admit", admit_after_a_restart)
    came = [result(evaluate(context, draw(context, seed))) for seed in (0, 1, 0)]
    assert len(n_restarts) == 2
    assert came == [expected(context, seed) for seed in (0, 1, 0)]
    assert verify(store_of(context)).is_sound
    open_store(address).close()
    open_store.cache_clear()
    server.stop()


def test_records_that_cannot_be_written_end_the_run(context) -> None:
    records = Path(store_of(context).files.path("records"))
    records.rename(records.with_name("moved"))
    records.write_text("in the way")
    with pytest.raises(StoreLost, match="records/"):
        outcome(context, draw(context, 3))


@pytest.mark.full
def test_a_bucket_that_refuses_or_dawdles_changes_nothing(tmp_path, caplog) -> None:
    with in_bucket(tmp_path) as (proxy, context):
        unhurt = expected(context)
        assert result(evaluate(context, draw(context, 3))) == unhurt
        proxy.fault = "slow"
        assert result(evaluate(context, draw(context, 3))) == unhurt
        proxy.fault = "errors"
        with caplog.at_level(logging.WARNING):
            other = result(evaluate(context, draw(context, 4)))
        assert proxy.n_faults > 3
        assert "is not kept" in caplog.text
        assert result(evaluate(context, draw(context, 3))) == unhurt
        proxy.fault = ""
        assert other == expected(context, 4)
        found = verify(store_of(context))
        assert not found.damaged


def test_a_bucket_that_is_away_for_a_while_is_waited_for_and_no_trial_is_charged(tmp_path) -> None:
    with in_bucket(tmp_path) as (proxy, context):
        unhurt = expected(context)
        seconds = evaluate(context, draw(context, 4)).cost_seconds
        proxy.fault = "away"
        back = threading.Timer(AWAY_SECONDS, lambda: setattr(proxy, "fault", ""))
        back.start()
        started = monotonic()
        came = evaluate(context, draw(context, 3))
        assert monotonic() - started > AWAY_SECONDS
        assert result(came) == unhurt
        assert came.cost_seconds < seconds + AWAY_SECONDS / 2
        assert verify(store_of(context)).is_sound


def test_a_worker_that_cannot_reach_the_store_has_no_verdict_on_its_trial(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv(OUTAGE_VARIABLE, "0.5")
    server = Postgres(tmp_path / "postgres")
    address = StoreAddress(str(tmp_path / "store"), server.new_database())
    context = context_of(tmp_path, address=address)
    query = draw(context, 3)
    open_store(address).close()
    open_store.cache_clear()  # as in a process that has just been started
    server.stop()
    came = run_trial(context, query.to_json())
    assert (came.evaluation, came.failure) == (None, None)
    assert "cannot" in came.lost or "connection" in came.lost
    open_store.cache_clear()


def test_a_store_that_refuses_for_good_is_not_waited_for(tmp_path) -> None:
    context = context_of(tmp_path)
    query = draw(context, 3)
    store = store_of(context)
    with store.database.write() as connection:
        connection.execute(update(store_table).values(schema=99))
    store.close()
    open_store.cache_clear()
    assert "newer version" in run_trial(context, query.to_json()).lost
    open_store.cache_clear()


def test_records_leave_the_last_gigabyte_and_the_study_can_resume_later(
    context, monkeypatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(records, "FREE_BYTES_KEPT", shutil.disk_usage("/").total * 10)
        with pytest.raises(DiskFull, match=r"GB left.* prune"):
            evaluate(context, draw(context, 3))  # and not a failed trial
    assert store_of(context).records.used_by("test") == []
    assert store_of(context).index.journal.unfinished() == []
    assert result(evaluate(context, draw(context, 3))) == expected(context)
    assert verify(store_of(context)).is_sound


@pytest.mark.full
def test_records_that_cannot_be_deleted_are_left_to_a_sweep(tmp_path, caplog) -> None:
    with in_bucket(tmp_path) as (proxy, context):
        store = store_of(context)
        for name in ("a", "b"):
            store.records.put(name, {"label": [1]}, "s")
        proxy.fault = "undeletable"
        with caplog.at_level(logging.WARNING):
            store.records.put("a", {"label": [2]}, "s")
            assert store.records.release("s", ["b"]) == ["b"]
        assert len({m for m in caplog.messages if "could not be deleted" in m}) == 1
        assert store.records.get("a") == {"label": [2]}
        assert len(store.index.journal.unfinished()) == 2
