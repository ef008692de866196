"""All tables of the database: JSON documents, and times in seconds since 1970.

`storage.opening` creates the tables and explains how to change one.
"""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    String,
    Table,
)

SCHEMA = 8
"""Number of the schema, in the row of the store. A newer version writes a higher number."""
FIRST_SCHEMA = 8
"""Oldest schema that is upgraded; development versions had earlier schemas."""

metadata = MetaData()

Document = JSON(none_as_null=True)
"""Column type of JSON documents."""


def _keys(**types: Any) -> Iterator[Column[Any]]:
    return (Column(name, kind, primary_key=True) for name, kind in types.items())


def _given(**types: Any) -> Iterator[Column[Any]]:
    return (Column(name, kind, nullable=False) for name, kind in types.items())


store_table = Table(
    "store",
    metadata,
    *_keys(id=String),
    *_given(schema=Integer, url=String, budget_bytes=BigInteger, cache_bytes=BigInteger),
)
"""The database's store: one row, locked to change the cache's totals."""

artifact_table = Table(
    "artifacts",
    metadata,
    *_keys(key=String(64)),
    Column("parent", String(64), nullable=True),
    *_given(
        study=String,
        step=String,
        algorithm=String,
        fold=Integer,
        is_present=Boolean,
        size_bytes=BigInteger,
        cost_seconds=Double,
        created=Double,
        last_used=Double,
    ),
    Column("hits", BigInteger, nullable=False, default=0),
    *_given(summary=Document, parts=Document, place=String, is_costly=Boolean),
    Index("artifacts_by_use", "is_present", "is_costly", "last_used", "key"),
    Index("artifacts_by_study", "study"),
    Index("artifacts_by_parent", "parent"),
    Index("artifacts_by_age", "is_present", "created", "key"),
)
"""An artifact ever made: present, evicted or refused.

A row outlives the bytes. Its summary (rows, columns, layout, ...) enters the keys of later steps,
so evicting an artifact never makes another one unreachable.
"""

pin_table = Table("pins", metadata, *_keys(key=String(64), owner=String), *_given(expires=Double))
"""An artifact that stays in the cache for its owner until the pin expires."""

step_count_table = Table(
    "step_counts",
    metadata,
    *_keys(step=String),
    *_given(
        hits=BigInteger,
        misses=BigInteger,
        seconds_saved=Double,
        evicted=BigInteger,
        refused=BigInteger,
        read_bytes=BigInteger,
        read_seconds=Double,
    ),
)
"""Cache use by step since the store was created."""

publication_table = Table(
    "publications",
    metadata,
    *_keys(place=String),
    *_given(folder=String, holder=String, started=Double),
)
"""A publication (a folder of files) that a process is writing or deleting."""

record_table = Table(
    "records",
    metadata,
    *_keys(id=String),
    *_given(size_bytes=BigInteger, created=Double, parts=Document),
)
"""A record: files that are never evicted."""

record_user_table = Table(
    "record_users",
    metadata,
    *_keys(record=String, study=String),
    Index("record_users_by_study", "study", "record"),
)
"""A study that uses a record. The record is deleted with its last row."""

lease_table = Table("leases", metadata, *_keys(name=String), *_given(holder=String, expires=Double))
"""A process that makes an artifact or runs a study; it renews the lease before the expiry."""

study_table = Table(
    "studies",
    metadata,
    *_keys(name=String),
    *_given(created=Double, state=String, problem=Document, settings=Document, result=Document),
)
"""A study: its problem is fixed, its settings are from its last start."""

event_table = Table(
    "events",
    metadata,
    *_keys(study=String, sequence=Integer),
    *_given(kind=String, body=Document, at=Double),
)
"""An event of a study, such as an ask or a tell; rows are only added."""

trial_table = Table(
    "trials", metadata, *_keys(study=String, number=Integer), *_given(state=String, body=Document)
)
"""A trial in its state after the events of its study."""

memo_table = Table("memos", metadata, *_keys(study=String), *_given(body=Document))
"""The memo of a study's optimizer, from its latest query."""

session_table = Table(
    "sessions",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("study", String, nullable=False, index=True),
    *_given(started=Double, seconds=Double),
)
"""A session: one run of the flow on a study, and its duration."""

series_table = Table(
    "series",
    metadata,
    *_keys(name=String),
    *_given(created=Double, question=Document, champions=Document, n_tests=Integer),
)
"""A series: studies of one question over time, and its champions, newest first."""

series_run_table = Table(
    "series_runs", metadata, *_keys(series=String, number=Integer), *_given(body=Document)
)
"""A run of a series that started a study, with the last decision on its model."""
