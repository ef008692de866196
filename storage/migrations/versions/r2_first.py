"""The first schema. A new database gets its tables from their declarations, so this makes none."""

revision, down_revision = "2", None


def upgrade() -> None:
    """Apply."""
