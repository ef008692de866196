"""An older database is upgraded as it is opened: once, and to the end or not at all."""

import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from alembic.operations import Operations
from contracts.store import POSTGRES_IN_FULL, entry, made, present, put, use
from hammering import run_killed, run_together
from sqlalchemy import (
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    String,
    event,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.engine import Engine
from sqlalchemy.schema import CreateIndex, CreateTable

from prefect_tune.storage import (
    ArtifactStore,
    Ledger,
    StoreAddress,
    StoreRefused,
    migrations,
    opening,
)
from prefect_tune.storage.database import Database
from prefect_tune.storage.key import digest
from prefect_tune.storage.schema import SCHEMA, artifact_table, metadata, store_table

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def database(either_address) -> Iterator[Database]:
    """That of the store."""
    database = Database(either_address.database or f"sqlite:///{either_address.url}/index.sqlite")
    yield database
    database.close()


NEXT = SCHEMA + 1


def to_next(op: Operations) -> None:
    """A later migration."""
    op.create_table("planted", Column("id", Integer, primary_key=True))
    op.add_column("studies", Column("loss", Double, nullable=True))


def plant() -> None:
    """Let this process be of the version that brings the next schema."""
    migrations._UPGRADES[NEXT] = to_next
    migrations.SCHEMA = opening.SCHEMA = NEXT


@pytest.fixture
def planted(monkeypatch) -> None:
    """This process is of the next version."""
    for module in (migrations, opening):
        monkeypatch.setattr(module, "SCHEMA", SCHEMA)
    monkeypatch.setattr(migrations, "_UPGRADES", {**migrations._UPGRADES})
    plant()


@pytest.fixture
def old(either_address) -> StoreAddress:
    """A store of this version with a study in it."""
    store = ArtifactStore(either_address)
    Ledger(store.database).create_study("s", {"metric": "error"}, {})
    store.close()
    return either_address


def state(database: Database) -> tuple[int, set[str]]:
    """The number of its schema, and the names of its tables."""
    with database.read() as connection:
        number = connection.execute(select(store_table.c.schema)).scalar_one()
        return number, set(inspect(connection).get_table_names())


def test_tables_change_only_with_the_number_of_the_schema() -> None:
    tables = [str(CreateTable(t)) for t in metadata.sorted_tables]
    indexes = sorted(str(CreateIndex(i)) for t in metadata.sorted_tables for i in t.indexes)
    assert (SCHEMA, digest("".join([*tables, *indexes]).encode())[:16]) == (7, "37866aebc6022c67")


def test_an_older_store_is_upgraded_and_has_what_it_had(request, old, database) -> None:
    request.getfixturevalue("planted")
    assert state(database)[0] == SCHEMA
    store = ArtifactStore(old)
    assert state(database) == (NEXT, {*metadata.tables, "planted"})
    assert Ledger(store.database).study("s").problem == {"metric": "error"}
    with database.read() as connection:
        assert connection.execute(text("SELECT loss FROM studies")).scalar_one() is None
        noted = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
        assert noted == str(NEXT)
    store.close()


def return_to_schema_2(database: Database, policy: str) -> None:
    """Give a store the tables that it had in schema 2."""
    before = MetaData()
    stores, artifacts = store_table.to_metadata(before), artifact_table.to_metadata(before)
    stores.append_column(Column("policy", String, nullable=False))
    stores.append_column(Column("clock", Double, nullable=False))
    artifacts.append_column(Column("priority", Double, nullable=False))
    artifacts.indexes = {index for index in artifacts.indexes if index.name != "artifacts_by_use"}
    order = ("is_present", "is_cheap", "priority", "key")
    Index("artifacts_by_priority", *(artifacts.c[name] for name in order))
    with database.write() as connection:
        for table, former, more in (
            (store_table, stores, {"schema": 2, "policy": policy, "clock": 0.5}),
            (artifact_table, artifacts, {"priority": 0.5}),
        ):
            rows = connection.execute(select(table)).mappings().all()
            table.drop(connection)
            former.create(connection)
            connection.execute(insert(former), [{**row, **more} for row in rows])
        connection.execute(text("UPDATE alembic_version SET version_num = '2'"))


def columns_and_indexes(database: Database) -> dict[str, tuple[list[Any], list[Any]]]:
    """Names, types and nullability of columns, and the columns of indexes, by table."""
    with database.read() as connection:
        seen = inspect(connection)
        return {
            name: (
                sorted((c["name"], str(c["type"]), c["nullable"]) for c in seen.get_columns(name)),
                sorted((i["name"], i["column_names"]) for i in seen.get_indexes(name)),
            )
            for name in ("store", "artifacts")
        }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "sqlite_version"),
    [("lru", sqlite3.sqlite_version_info), ("gdsf", sqlite3.sqlite_version_info),
     ("gdsf", (3, 34, 1))],
)  # fmt: skip
def test_a_store_of_schema_2_keeps_its_artifacts_and_says_if_its_eviction_changed(
    either_address, database, caplog, monkeypatch, *, policy, sqlite_version
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", sqlite_version)
    store = ArtifactStore(either_address, memory_bytes=0)
    size = put(store, "a").size_bytes
    put(store, "b")
    use(store, "a")
    store.close()
    new = columns_and_indexes(database)
    return_to_schema_2(database, policy)
    assert columns_and_indexes(database) != new
    for _ in range(2):  # the second time, nothing is upgraded
        store = ArtifactStore(either_address, memory_bytes=0)
        assert store.get_or_make(entry("a"), {}, made)[1] is None
        store.close()
    assert columns_and_indexes(database) == new
    assert caplog.text.count("evicts the least recently used") == (policy == "gdsf")
    store = ArtifactStore(either_address, 2 * size)
    put(store, "c")
    assert present(store) == {"a", "c"}
    store.close()


SETTINGS_OF_SCHEMA_3 = {
    "method": "tpe", "seed": 7, "folds": None, "holdout": 0.25, "test_size": None,
    "source": {
        "data": "table.csv", "target": "y", "labels": None, "format": "table", "test": "new.csv",
        "group": "patient", "drop": ["a"], "categorical": [], "drop_missing_target": True,
        "aside": ["a"], "predicts": "classes",
    },
    "metric": "auroc", "positive": "yes", "data_name": "table", "chance_loss": 0.5,
    "space": "small", "option": {"n_startup": 5}, "use_cache": False, "epochs": 27, "race": False,
    "start_from": "known.json", "start": [{"fit model": {"algorithm": "lda"}}], "trials": 9,
    "budget_seconds": 90.5, "quantity_digests": {"latency_us": "d"}, "ensemble": 8,
    "constraint": [
        {"quantity": {"name": "latency_us", "column": "", "bins": [], "metric": "", "code": ""},
         "bound": 50.0},
    ],
    "trial_seconds": 20.0, "trial_memory_bytes": 2_000_000_000, "flow_run_id": "f",
}  # fmt: skip


@pytest.mark.parametrize(
    ("stored", "given"),
    [(8, 8), (1, 1), (None, None), ("single", "single"), ("greedy", "greedy"), ("auto", "auto"),
     ("agnostic", "agnostic")],
)  # fmt: skip
def test_ensembles_of_schema_3_stay_what_they_were(stored, given) -> None:
    from prefect_tune.flows.options.declared import StudyOptions

    ensemble = migrations._settings_of_4({**SETTINGS_OF_SCHEMA_3, "ensemble": stored})["options"]
    rule = StudyOptions.from_json(ensemble).ensemble
    assert rule == StudyOptions.parse({"ensemble": given}).ensemble


def test_studies_of_schema_3_have_their_options_and_damaged_ones_stay(
    either_address, database
) -> None:
    from prefect_tune.flows.options.declared import StudyOptions
    from prefect_tune.flows.study.plan import StudyPlan
    from prefect_tune.tasks.problem import Problem

    problem = Problem("data", "split", "small", "digest", "auroc", seed=7).to_json()
    store = ArtifactStore(either_address)
    for name, settings in (
        ("whole", SETTINGS_OF_SCHEMA_3), ("damaged", {"source": 3}), ("spoilt", {}),
    ):  # fmt: skip
        Ledger(store.database).create_study(name, problem, settings)
    store.close()
    with database.write() as connection:
        if not either_address.database:  # PostgreSQL keeps no such text
            spoilt = "UPDATE studies SET settings = '{not json' WHERE name = 'spoilt'"
            connection.execute(text(spoilt))
        connection.execute(update(store_table).values(schema=3))
        connection.execute(text("UPDATE alembic_version SET version_num = '3'"))
    store = ArtifactStore(either_address)
    settings = Ledger(store.database).study("whole").settings
    assert SETTINGS_OF_SCHEMA_3.items() <= settings.items()  # for processes of that version
    plan = StudyPlan.from_stored(Ledger(store.database).study("whole"))
    assert Ledger(store.database).study("damaged").settings == {"source": 3}
    store.close()
    assert plan.options == StudyOptions.parse({
        "data": "table.csv", "target": "y", "format": "table", "test": "new.csv",
        "group": "patient", "drop": ["a"], "drop_missing_target": True, "holdout": 0.25,
        "space": "small", "method": "tpe", "metric": "auroc", "positive": "yes",
        "constraint": ["latency_us<=50"], "ensemble": 8, "epochs": 27, "race": False,
        "start": "known.json", "seed": 7, "option": {"n_startup": 5}, "trials": 9,
        "budget": "90.5s", "trial_timeout": "20s", "trial_memory": "2GB", "no_cache": True,
        "study": "whole",
    })  # fmt: skip
    assert (plan.predicts, plan.aside, plan.data_name) == ("classes", ("a",), "table")
    assert (plan.chance_loss, plan.flow_run_id) == (0.5, "f")
    assert plan.start_configurations == ({"fit model": {"algorithm": "lda"}},)


def told(
    number: int, loss: float, latency: float | None, state: str = "complete"
) -> dict[str, Any]:
    """The document of a trial with a loss and perhaps a latency."""
    measured = {} if latency is None else {"latency_us": latency}
    evaluation = {"loss": loss, "constraints": measured}
    return {"number": number, "state": state, "evaluation": evaluation, "failure": None}


LATENCY = {"name": "latency_us", "column": "", "bins": [], "metric": "", "code": ""}
OF_STUDY = {
    "free": ([], {}, [told(0, 3.0, None), told(1, 2.0, None), told(2, 2.0, None),
                      told(3, 1.0, None, "stopped")], (1, None)),
    "bound": ([{"quantity": LATENCY, "bound": 50.0}], {"incumbent": None},
              [told(0, 3.0, 60.0), told(1, 2.0, 55.0), told(2, 1.0, 51.0, "stopped"),
               told(3, 1.0, None)], (None, 1)),
    "chosen": ([], {"incumbent": 0}, [told(0, 3.0, None), told(1, 2.0, None)], (0, None)),
    "empty": ([], {}, [], (None, None)),
}  # fmt: skip
"""Constraints, result, trials, and the numbers of the leading and the nearest trial."""


def test_a_store_of_schema_4_gets_the_leaders_that_readers_found_before(
    either_address, database
) -> None:
    store = ArtifactStore(either_address)
    ledger = Ledger(store.database)
    for name, (bounds, result, trials, _) in OF_STUDY.items():
        ledger.create_study(name, {}, {"options": {"constraint": bounds}})
        ledger.update_study(name, result=result)
        for trial in trials:
            ledger.append(name, "ask", {"number": trial["number"]}, trial)
    ledger.create_study("damaged", {}, {"options": 3})
    store.close()
    with database.write() as connection:
        connection.execute(update(store_table).values(schema=4))
        connection.execute(text("UPDATE alembic_version SET version_num = '4'"))
    store = ArtifactStore(either_address)
    for name, (_, result, _, (best, nearest)) in OF_STUDY.items():
        expected = {**result, "best_trial": best, "nearest_trial": nearest}
        assert Ledger(store.database).study(name).result == expected
    assert Ledger(store.database).study("damaged").result == {}
    store.close()


@pytest.mark.parametrize("is_noted", [False, True])
def test_a_store_from_before_the_first_schema_is_refused_and_left_alone(
    old, database, is_noted
) -> None:
    with database.write() as connection:
        connection.execute(update(store_table).values(schema=1))
        change = "UPDATE alembic_version SET version_num = '1'"
        connection.execute(text(change if is_noted else "DROP TABLE alembic_version"))
    before = state(database)
    with pytest.raises(StoreRefused) as refused:
        ArtifactStore(old)
    for part in (old.url, "schema 1", "--store"):
        assert part in str(refused.value)
    assert state(database) == before


def open_store(either_address: StoreAddress, barrier) -> None:
    plant()
    barrier.wait(60)
    ArtifactStore(either_address).close()


@POSTGRES_IN_FULL
@pytest.mark.slow
@pytest.mark.parametrize("is_new", [False, pytest.param(True, marks=pytest.mark.full)])
def test_processes_that_open_it_at_once_upgrade_it_once(
    request, either_address, database, is_new
) -> None:
    if not is_new:
        request.getfixturevalue("old")
    barrier = SPAWN.Barrier(2)
    run_together(open_store, *[(either_address, barrier)] * 2)
    assert state(database)[0] == NEXT
    with database.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM store")).scalar_one() == 1


def open_and_die(either_address: StoreAddress) -> None:
    """Open a store, and be killed when half of its migration is done."""

    def die(*about: object) -> None:
        if "CREATE TABLE planted" in str(about[2]):
            os.kill(os.getpid(), signal.SIGKILL)

    plant()
    event.listen(Engine, "after_cursor_execute", die)
    ArtifactStore(either_address)


@POSTGRES_IN_FULL
@pytest.mark.slow
def test_who_is_killed_while_it_upgrades_leaves_it_as_it_was(request, old, database) -> None:
    run_killed(open_and_die, old)
    assert state(database) == (SCHEMA, set(metadata.tables))
    request.getfixturevalue("planted")
    ArtifactStore(old).close()
    assert state(database)[0] == NEXT


def test_a_newer_one_is_refused_and_left_alone(old, database) -> None:
    with database.write() as connection:
        connection.execute(update(store_table).values(schema=SCHEMA + 1))
        connection.execute(text("ALTER TABLE store RENAME COLUMN budget_bytes TO budget"))
    with pytest.raises(StoreRefused, match=rf"format {SCHEMA + 1}"):
        ArtifactStore(old)
    assert state(database)[0] == SCHEMA + 1
