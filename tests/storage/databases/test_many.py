"""Statements about very many keys and records: a database limits the values in each of them."""

from dataclasses import replace

import pytest
from sqlalchemy import insert

from prefect_tune.storage import ArtifactStore
from prefect_tune.storage.database import epoch
from prefect_tune.storage.schema import publication_table, record_table, record_user_table

MANY = 70_000
"""More than SQLite (32,766 as it comes, 250,000 as some build it) or PostgreSQL (65,535) takes."""
KEYS = [f"{number:064x}" for number in range(MANY)]


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, address, postgres):
    database = postgres.new_database() if request.param == "postgresql" else ""
    opened = ArtifactStore(replace(address, database=database), memory_bytes=0)
    yield opened
    opened.close()


def test_records_of_a_large_study_go_and_those_of_others_stay(store) -> None:
    shared = KEYS[:10]
    part = {"digest": "", "size_bytes": 1, "codec": "json", "signature": ""}
    rows = [
        {"id": key, "size_bytes": 1, "created": 0.0, "parts": {"x": {"file": f"{key}/x", **part}}}
        for key in KEYS
    ]
    with store.database.write() as connection:
        connection.execute(insert(record_table), rows)
        used = [(key, "large") for key in KEYS] + [(key, "small") for key in shared]
        connection.execute(
            insert(record_user_table), [{"record": key, "study": study} for key, study in used]
        )
    assert len(store.records.release("large")) == MANY - len(shared)
    assert sorted(store.records.ids()) == store.records.used_by("small") == shared
    assert store.index.journal.under_way() == []


def test_records_are_linked_and_released_by_name(store) -> None:
    store.records.link(KEYS, "large")
    assert store.records.used_by("large") == KEYS
    assert store.records.release("large", KEYS[1:]) == []  # there are none of that name
    assert store.records.used_by("large") == KEYS[:1]


def test_keys_are_looked_up_pinned_and_released(store) -> None:
    assert store.index.entries(KEYS) == {}
    assert store.index.bytes_present(KEYS, "s") == 0
    store.index.pins.set(KEYS, "large", 60)
    store.index.pins.change(KEYS[:5], KEYS[5:], "large", 60)
    store.index.pins.release("large")


def test_publications_are_finished(store) -> None:
    rows = [{"place": key, "folder": "cache", "holder": "{}"} for key in KEYS]
    with store.database.write() as connection:
        connection.execute(insert(publication_table).values(started=epoch()), rows)
    store.index.journal.finish(KEYS)
    assert store.index.journal.under_way() == []
