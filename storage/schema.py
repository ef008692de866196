"""All tables of the database, which holds index, ledger and leases.

`storage.migrations` makes them, and says how to change one. Documents are JSON values; points in
time are seconds since 1970.
"""

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

SCHEMA = 5
"""Number of the schema; a database with a higher one was written by a newer version.

`storage.migrations` upgrades lower ones, from `FIRST_SCHEMA` on.
"""
FIRST_SCHEMA = 2

metadata = MetaData()

Document = JSON(none_as_null=True)
"""Column type of JSON documents."""

store_table = Table(
    "store",
    metadata,
    Column("id", String, primary_key=True),
    Column("schema", Integer, nullable=False),
    Column("url", String, nullable=False),
    Column("budget_bytes", BigInteger, nullable=False),
    Column("count_present", BigInteger, nullable=False, default=0),
    Column("cache_bytes", BigInteger, nullable=False, default=0),
)
"""The store of this database, in its only row, which is locked to change the cache's totals."""

revision_table = Table(
    "alembic_version", metadata, Column("version_num", String(32), primary_key=True)
)
"""The number of the schema, in its only row: Alembic's own table, here made without Alembic."""

artifact_table = Table(
    "artifacts",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("parent", String(64), nullable=True),
    Column("study", String, nullable=False),
    Column("step", String, nullable=False),
    Column("algorithm", String, nullable=False),
    Column("fold", Integer, nullable=False),
    Column("is_present", Boolean, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("cost_seconds", Double, nullable=False),
    Column("created", Double, nullable=False),
    Column("last_used", Double, nullable=False),
    Column("hits", BigInteger, nullable=False, default=0),
    Column("facts", Document, nullable=False),  # the summary; stores on disk have this name
    Column("parts", Document, nullable=False),
    Column("place", String, nullable=False),
    Column("is_cheap", Boolean, nullable=False),
    Index("artifacts_by_use", "is_present", "is_cheap", "last_used", "key"),
    Index("artifacts_by_study", "study"),
    Index("artifacts_by_parent", "parent"),
    Index("artifacts_by_age", "is_present", "created", "key"),
)
"""An artifact that was ever made, whether its bytes are in the cache, were evicted or refused.

A row outlives the bytes. Its summary (rows, columns, layout, ...) is what the keys of later steps
are computed from, so evicting an artifact never makes another one unreachable.
"""

pin_table = Table(
    "pins",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("owner", String, primary_key=True),
    Column("expires", Double, nullable=False),
)
"""An artifact that its owner keeps in the cache until the pin expires."""

step_time_table = Table(
    "step_times",
    metadata,
    Column("step", String, primary_key=True),
    Column("algorithm", String, primary_key=True),
    Column("size_class", Integer, primary_key=True),
    Column("make_seconds", Double, nullable=True),
    Column("load_seconds", Double, nullable=True),
    Column("is_cheap", Boolean, nullable=False, default=False),
)
"""How long artifacts of one step, algorithm and size take to make and to load, on average."""

step_count_table = Table(
    "step_counts",
    metadata,
    Column("step", String, primary_key=True),
    Column("hits", BigInteger, nullable=False),
    Column("misses", BigInteger, nullable=False),
    Column("seconds_saved", Double, nullable=False),
    Column("evicted", BigInteger, nullable=False),
)
"""How often the cache has served a step, since the store was made."""

refusal_table = Table(
    "refusals",
    metadata,
    Column("reason", String, primary_key=True),
    Column("times", BigInteger, nullable=False),
)
"""A reason for which artifacts were not kept, and how often."""

publication_table = Table(
    "publications",
    metadata,
    Column("place", String, primary_key=True),
    Column("folder", String, nullable=False),
    Column("holder", String, nullable=False),
    Column("started", Double, nullable=False),
)
"""A publication (a folder of files) that a process is writing or deleting."""

record_table = Table(
    "records",
    metadata,
    Column("id", String, primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("created", Double, nullable=False),
    Column("parts", Document, nullable=False),
)
"""A record: files that are never evicted."""

record_user_table = Table(
    "record_users",
    metadata,
    Column("record", String, primary_key=True),
    Column("study", String, primary_key=True),
    Index("record_users_by_study", "study", "record"),
)
"""A study that uses a record; with its last row the record is deleted."""

lease_table = Table(
    "leases",
    metadata,
    Column("name", String, primary_key=True),
    Column("holder", String, nullable=False),
    Column("expires", Double, nullable=False),
)
"""A process that makes an artifact or runs a study; it renews the lease before that expires."""

study_table = Table(
    "studies",
    metadata,
    Column("name", String, primary_key=True),
    Column("created", Double, nullable=False),
    Column("state", String, nullable=False),
    Column("problem", Document, nullable=False),
    Column("settings", Document, nullable=False),
    Column("result", Document, nullable=False),
)
"""A study: its problem never changes, its settings are those of its last start."""

event_table = Table(
    "events",
    metadata,
    Column("study", String, primary_key=True),
    Column("sequence", Integer, primary_key=True),
    Column("kind", String, nullable=False),
    Column("body", Document, nullable=False),
    Column("at", Double, nullable=False),
)
"""An event of a study, for instance that a query was asked for or told; rows are only added."""

trial_table = Table(
    "trials",
    metadata,
    Column("study", String, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("state", String, nullable=False),
    Column("body", Document, nullable=False),
)
"""A trial as it stands after the events of its study."""

memo_table = Table(
    "memos",
    metadata,
    Column("study", String, primary_key=True),
    Column("body", Document, nullable=False),
)
"""The memo of a study's optimizer, from its latest query."""

session_table = Table(
    "sessions",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("study", String, nullable=False, index=True),
    Column("started", Double, nullable=False),
    Column("seconds", Double, nullable=False),
)
"""A session: one run of the flow on a study, and how long it has lasted."""
