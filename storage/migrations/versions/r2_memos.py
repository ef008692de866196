"""Memos of methods, which some stores have already, and an index of records by study."""

from alembic import op
from sqlalchemy import JSON, Column, String

revision, down_revision = "2", "1"


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "memos",
        Column("study", String, primary_key=True),
        Column("body", JSON, nullable=False),
        if_not_exists=True,
    )
    op.create_index("record_users_by_study", "record_users", ["study", "record"])
