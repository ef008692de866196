"""The database of the embedded server, laid ready-made.

Prefect's migrations take ten seconds to build the same empty tables in every new home.
"""

import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

from platformdirs import user_cache_path

from prefect_tune.deployments.prefect_settings import server_environment
from prefect_tune.storage.private_folder import make_private_file

__all__ = ["lay_database", "prepare_template"]

_FILE = "prefect.db"
_UPGRADE = (sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y")


def lay_database(folder: Path) -> None:
    """Put an empty database into a new home, if this machine has made one before."""
    database, template = folder / _FILE, _template()
    is_new = not database.exists()
    make_private_file(database)  # before SQLite does, and gives its log the same mode
    if is_new and template.exists():
        shutil.copyfile(template, database)


def prepare_template() -> None:
    """Make the empty database that new homes on this machine begin with, unless it is there."""
    template = _template()
    if template.exists():
        return
    template.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=template.parent) as folder:
        environment = server_environment(Path(folder))
        make_private_file(Path(folder) / _FILE)
        subprocess.run(_UPGRADE, env=environment, check=True, capture_output=True)  # noqa: S603
        # What SQLite's log still holds must be in the one file that is copied.
        with closing(sqlite3.connect(Path(folder) / _FILE)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("PRAGMA journal_mode=DELETE")
        (Path(folder) / _FILE).replace(template)


def _template() -> Path:
    return user_cache_path("prefect-tune") / f"prefect-{version('prefect')}.db"
