"""The initial database of a new home folder: Prefect's empty tables and block types.

A server needs ten seconds to create tables and block types, and one second to check that both are
complete. Therefore a template database is created once per machine, and each home folder has a file
that lists the versions for which its database is complete.
"""

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

from platformdirs import user_cache_path

from prefect_tune.deployments.server.prefect_settings import server_environment
from prefect_tune.storage.local_files import atomic_file, make_private_file

_FILE = "prefect.db"
_NOTE = "block-types"
_COMMAND = (sys.executable, "-m", "prefect_tune.deployments.server.empty_database")


def seed_database(folder: Path) -> None:
    """Copy the template database into a new home folder, if there is a template."""
    database, template = folder / _FILE, _template()
    if not database.exists():
        (folder / _NOTE).unlink(missing_ok=True)  # of a deleted database
    if not database.exists() and template.exists():
        with atomic_file(database) as temporary:  # a killed process must not leave half a file
            temporary.chmod(0o600)
            shutil.copyfile(template, temporary)
        note_block_types(folder)
    make_private_file(database)  # SQLite then gives its log file the same mode


def note_block_types(folder: Path) -> None:
    """Record that a home folder's database has the block types of the installed versions."""
    make_private_file(folder / _NOTE)
    (folder / _NOTE).write_text(_versions())


def has_block_types(folder: Path) -> bool:
    """Return whether a home folder's database has all tables and block types of this version."""
    note, has_tables = folder / _NOTE, (folder / _FILE).stat().st_size > 0
    return has_tables and note.is_file() and note.read_text() == _versions()


def prepare_template() -> None:
    """Create the template database of this machine, unless the template exists."""
    template = _template()
    if template.exists():
        return
    template.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=template.parent) as folder:
        environment = server_environment(Path(folder))
        make_private_file(Path(folder) / _FILE)
        subprocess.run(  # noqa: S603 - our own command
            _COMMAND, env=environment, cwd=folder, check=True, capture_output=True
        )
        # The copied file must include the contents of SQLite's log.
        with closing(sqlite3.connect(Path(folder) / _FILE)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("PRAGMA journal_mode=DELETE")
        (Path(folder) / _FILE).replace(template)


def _template() -> Path:
    return user_cache_path("prefect-tune") / f"{_versions()}.db"


def _versions() -> str:
    return f"prefect-{version('prefect')}-tune-{version('prefect-tune')}"


async def _fill() -> None:
    from prefect.plugins import load_prefect_collections  # noqa: PLC0415 - heavy
    from prefect.server.database import provide_database_interface  # noqa: PLC0415 - heavy
    from prefect.server.models.block_registration import (  # noqa: PLC0415 - heavy
        run_block_auto_registration,
    )

    database = provide_database_interface()
    await database.create_db()
    load_prefect_collections()
    async with await database.session() as session:
        await run_block_auto_registration(session=session)


if __name__ == "__main__":
    asyncio.run(_fill())
