"""The tables of version 0.1."""

from alembic import op
from sqlalchemy import JSON, BigInteger, Boolean, Column, Double, Integer, String

revision, down_revision = "1", None


def upgrade() -> None:
    """Apply."""
    _studies()
    _artifacts()
    _files()


def _studies() -> None:
    op.create_table(
        "studies",
        Column("name", String, primary_key=True),
        Column("created", Double, nullable=False),
        Column("state", String, nullable=False),
        Column("problem", JSON, nullable=False),
        Column("settings", JSON, nullable=False),
        Column("result", JSON, nullable=False),
    )
    op.create_table(
        "events",
        Column("study", String, primary_key=True),
        Column("sequence", Integer, primary_key=True),
        Column("kind", String, nullable=False),
        Column("body", JSON, nullable=False),
        Column("at", Double, nullable=False),
    )
    op.create_table(
        "trials",
        Column("study", String, primary_key=True),
        Column("number", Integer, primary_key=True),
        Column("state", String, nullable=False),
        Column("body", JSON, nullable=False),
    )
    op.create_table(
        "sessions",
        Column("id", Integer, primary_key=True, autoincrement=True),
        Column("study", String, nullable=False),
        Column("started", Double, nullable=False),
        Column("seconds", Double, nullable=False),
    )
    op.create_index("ix_sessions_study", "sessions", ["study"])
    op.create_table(
        "leases",
        Column("name", String, primary_key=True),
        Column("holder", String, nullable=False),
        Column("expires", Double, nullable=False),
    )


def _artifacts() -> None:
    op.create_table(
        "artifacts",
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
        Column("hits", BigInteger, nullable=False),
        Column("facts", JSON, nullable=False),
        Column("parts", JSON, nullable=False),
        Column("place", String, nullable=False),
        Column("priority", Double, nullable=False),
        Column("is_cheap", Boolean, nullable=False),
    )
    for name, columns in {
        "artifacts_by_priority": ["is_present", "is_cheap", "priority", "key"],
        "artifacts_by_study": ["study"],
        "artifacts_by_parent": ["parent"],
        "artifacts_by_age": ["is_present", "created", "key"],
    }.items():
        op.create_index(name, "artifacts", columns)
    op.create_table(
        "pins",
        Column("key", String(64), primary_key=True),
        Column("owner", String, primary_key=True),
        Column("expires", Double, nullable=False),
    )
    _statistics()


def _statistics() -> None:
    op.create_table(
        "step_times",
        Column("step", String, primary_key=True),
        Column("algorithm", String, primary_key=True),
        Column("size_class", Integer, primary_key=True),
        Column("make_seconds", Double, nullable=True),
        Column("load_seconds", Double, nullable=True),
        Column("is_cheap", Boolean, nullable=False),
    )
    op.create_table(
        "step_counts",
        Column("step", String, primary_key=True),
        Column("hits", BigInteger, nullable=False),
        Column("misses", BigInteger, nullable=False),
        Column("seconds_saved", Double, nullable=False),
        Column("evicted", BigInteger, nullable=False),
    )
    op.create_table(
        "refusals",
        Column("reason", String, primary_key=True),
        Column("times", BigInteger, nullable=False),
    )


def _files() -> None:
    op.create_table(
        "store",
        Column("id", String, primary_key=True),
        Column("schema", Integer, nullable=False),
        Column("url", String, nullable=False),
        Column("budget_bytes", BigInteger, nullable=False),
        Column("policy", String, nullable=False),
        Column("clock", Double, nullable=False),
        Column("count_present", BigInteger, nullable=False),
        Column("cache_bytes", BigInteger, nullable=False),
    )
    op.create_table(
        "publications",
        Column("place", String, primary_key=True),
        Column("folder", String, nullable=False),
        Column("holder", String, nullable=False),
        Column("started", Double, nullable=False),
    )
    op.create_table(
        "records",
        Column("id", String, primary_key=True),
        Column("size_bytes", BigInteger, nullable=False),
        Column("created", Double, nullable=False),
        Column("parts", JSON, nullable=False),
    )
    op.create_table(
        "record_users",
        Column("record", String, primary_key=True),
        Column("study", String, primary_key=True),
    )
