"""Series as rows: what a write keeps, the champions that are kept, and who may write."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from services import Postgres
from sqlalchemy import update

from prefect_tune.storage import series as module
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.database import DatabaseDamaged
from prefect_tune.storage.lease import LeaseLost
from prefect_tune.storage.processes import ProcessIdentity
from prefect_tune.storage.schema import lease_table, series_run_table
from prefect_tune.storage.series import (
    Champion,
    Changes,
    Decision,
    Reused,
    Series,
    SeriesRun,
    SeriesTable,
    series_lease,
)

SERIES = Series("n", 1.5, {"metric": "error"})
RUN = SeriesRun(
    study="n-1",
    number=1,
    at=2.0,
    rows=10,
    changes=Changes(rows_added=3, columns_differing=("exported",)),
    options={"folds": 4},
    reused=Reused(("n-0",), 5, 2, 0.5),
    decision=Decision(
        promoted=True, outcome="better", reason="so", model="m", compared={"p": 0.1 + 0.2}
    ),
)


@pytest.fixture
def table(either_store) -> Iterator[SeriesTable]:
    """The table of series, with the lease of the series `n`."""
    assert either_store.leases.acquire(series_lease("n"))
    yield SeriesTable(either_store.database)
    either_store.leases.release(series_lease("n"))


def test_a_series_comes_back_as_it_was_written(table) -> None:
    assert (table.find("n"), table.names()) == (None, [])
    table.save(SERIES, RUN)
    champion = Champion("n-1", "champions/n/n-1/1", "test")
    second = replace(RUN, study="n-2", number=2, decision=None)
    table.save(replace(SERIES, champions=(champion,), n_tests=3), second)
    expected = replace(SERIES, champions=(champion,), n_tests=3, runs=(RUN, second))
    assert (table.find("n"), table.names()) == (expected, ["n"])
    table.save(SERIES, replace(second, rows=99))  # a run is there once
    assert [run.rows for run in table.find("n").runs] == [10, 99]
    table.delete("n")
    assert (table.find("n"), table.names()) == (None, [])


def test_promotions_keep_the_last_three_former_champions() -> None:
    series = replace(SERIES, n_tests=2)
    for number in (1, 2, 4, 5, 6, 4):
        series = series.with_champion(Champion(f"n-{number}", str(number), "rule"))
    assert [champion.study for champion in series.champions] == ["n-4", "n-6", "n-5", "n-2"]
    assert series.n_tests == 0


def test_a_process_without_the_lease_changes_nothing(either_store) -> None:
    table = SeriesTable(either_store.database)
    with pytest.raises(LeaseLost):
        table.save(SERIES)
    assert either_store.leases.acquire(series_lease("n"))
    table.save(SERIES)
    with either_store.database.write() as connection:  # as another process takes over
        other = ProcessIdentity.this_process()._replace(pid=1).to_text()
        connection.execute(update(lease_table).values(holder=other))
    for change in (lambda: table.save(SERIES, RUN), lambda: table.delete("n")):
        with pytest.raises(LeaseLost, match="series n"):
            change()
    assert table.find("n") == SERIES


def test_a_damaged_run_is_named(table, either_store) -> None:
    table.save(SERIES, RUN)
    with either_store.database.write() as connection:
        connection.execute(update(series_run_table).values(body={"study": "n-1"}))
    with pytest.raises(DatabaseDamaged, match="--remove"):
        table.find("n")


@pytest.mark.slow
def test_a_decision_is_there_after_a_restart_of_the_database(tmp_path, monkeypatch) -> None:
    server = Postgres(tmp_path / "postgres")
    store = ArtifactStore(StoreAddress(str(tmp_path / "store"), server.new_database()))
    assert store.leases.acquire(series_lease("n"))
    checks = 0
    check_held = module.check_held

    def restarted(connection, name) -> None:
        nonlocal checks
        checks += 1
        check_held(connection, name)
        if checks == 1:
            server.restart()  # in the middle of the transaction

    monkeypatch.setattr(module, "check_held", restarted)
    SeriesTable(store.database).save(SERIES, RUN)
    assert checks == 2
    assert SeriesTable(store.database).find("n") == replace(SERIES, runs=(RUN,))
    store.close()
    server.stop()
