"""All tables of the database. Documents are JSON, and times are seconds since 1970.

`storage.opening` creates the tables and explains how to change a table.
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

SCHEMA = 9
"""Number of the present schema, stored in the row of the store."""
FIRST_SCHEMA = 9
"""Oldest schema that can be upgraded. Older schemas belong to development versions."""

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
"""The store that owns the database. The only row is locked while the cache's totals change."""

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
"""Artifacts, including evicted and refused artifacts.

The row of an artifact stays after its files are deleted. The summary in the row (number of rows and
columns, layout and more) is part of the keys of later steps, so artifacts of later steps can still
be found after an eviction.
"""

pin_table = Table("pins", metadata, *_keys(key=String(64), owner=String), *_given(expires=Double))
"""Pins: artifacts that stay in the cache for an owner until the pin expires."""

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
"""Counts of cache use by step, since the store was created."""

publication_table = Table(
    "publications",
    metadata,
    *_keys(place=String),
    *_given(folder=String, holder=String, started=Double),
)
"""Publications (folders of files) that a process is writing or deleting."""

record_table = Table(
    "records",
    metadata,
    *_keys(id=String),
    *_given(size_bytes=BigInteger, created=Double, parts=Document),
)
"""Records: files that are never evicted."""

record_user_table = Table(
    "record_users",
    metadata,
    *_keys(record=String, study=String),
    Index("record_users_by_study", "study", "record"),
)
"""Studies that use records, one row per pair. A record is deleted with its last row."""

lease_table = Table("leases", metadata, *_keys(name=String), *_given(holder=String, expires=Double))
"""Leases, each with the process that holds the lease and renews the lease before it expires."""

study_table = Table(
    "studies",
    metadata,
    *_keys(name=String),
    *_given(created=Double, state=String, problem=Document, settings=Document, result=Document),
)
"""Studies. The problem of a study is fixed; the settings are the settings of the last start."""

event_table = Table(
    "events",
    metadata,
    *_keys(study=String, sequence=Integer),
    *_given(kind=String, body=Document, at=Double),
)
"""Events of studies, such as proposals and outcomes. Rows are only added."""

trial_table = Table(
    "trials", metadata, *_keys(study=String, number=Integer), *_given(state=String, body=Document)
)
"""Trials, each in the state after the latest event of its study."""

memo_table = Table("memos", metadata, *_keys(study=String), *_given(body=Document))
"""The memo of each study's optimizer, from the latest proposal."""

session_table = Table(
    "sessions",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("study", String, nullable=False, index=True),
    *_given(started=Double, seconds=Double),
)
"""Sessions. A session is a run of the flow on a study, with a duration."""

series_table = Table(
    "series",
    metadata,
    *_keys(name=String),
    *_given(created=Double, question=Document, champions=Document, n_tests=Integer),
)
"""Series: studies of one question over time, and their champions, newest first."""

series_run_table = Table(
    "series_runs", metadata, *_keys(series=String, number=Integer), *_given(body=Document)
)
"""Runs of series that started a study, with the last decision on the study's model."""
