"""Eviction has one order, the last use: columns for other orders go."""

import sqlite3
from typing import Literal

from alembic import op
from sqlalchemy import text

from prefect_tune.storage.notices import warn

revision, down_revision = "3", "2"

_ORDER = ["is_present", "is_cheap", "last_used", "key"]


def upgrade() -> None:
    """Apply."""
    url, policy = op.get_bind().execute(text("SELECT url, policy FROM store")).first() or ("", "")
    if policy == "gdsf":
        warn(
            "eviction",
            f"the store {url} evicted by gdsf, which this version no longer has; it evicts the "
            "least recently used artifacts now",
            url,
        )
    # Before 3.35, SQLite has no DROP COLUMN: Alembic then copies the table, which is slower.
    recreate: Literal["auto", "never"] = (
        "auto" if sqlite3.sqlite_version_info < (3, 35) else "never"
    )
    with op.batch_alter_table("artifacts", recreate=recreate) as artifacts:
        artifacts.drop_index("artifacts_by_priority")
        artifacts.drop_column("priority")
        artifacts.create_index("artifacts_by_use", _ORDER)
    with op.batch_alter_table("store", recreate=recreate) as store:
        store.drop_column("policy")
        store.drop_column("clock")
