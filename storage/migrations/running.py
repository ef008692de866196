"""Running migrations with Alembic, which only older databases need."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext, RevisionStep
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

FOLDER = Path(__file__).parent
"""Has the folder `versions`."""


def run_migrations(connection: Connection) -> None:
    """Run, within a transaction, the migrations that a database has not had."""
    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)

    def steps(since: Any, _: MigrationContext) -> Sequence[RevisionStep]:
        return scripts._upgrade_revs("head", since)  # noqa: SLF001 - as Alembic's commands do

    with EnvironmentContext(config, scripts, fn=steps, destination_rev="head") as environment:
        environment.configure(connection=connection)
        environment.run_migrations()
