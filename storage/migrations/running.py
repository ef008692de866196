"""Running migrations with Alembic, which only older databases need."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext, RevisionStep
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

__all__ = ["run_migrations"]


def run_migrations(connection: Connection, to: str = "head") -> None:
    """Run, within a transaction, the migrations that a database has not had.

    Args:
        connection: The transaction.
        to: The last of them.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)

    def steps(since: Any, _: MigrationContext) -> Sequence[RevisionStep]:
        return scripts._upgrade_revs(to, since)  # noqa: SLF001 - as Alembic's commands do

    with EnvironmentContext(config, scripts, fn=steps, destination_rev=to) as environment:
        environment.configure(connection=connection)
        environment.run_migrations()
