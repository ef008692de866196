"""A new home begins with a copy of the empty database, and keeps what it has."""

import sqlite3
from contextlib import closing

from prefect_tune.deployments.server.process import lay_database, prepare_template


def test_a_new_home_gets_all_tables(tmp_path) -> None:
    prepare_template()
    lay_database(tmp_path)
    with closing(sqlite3.connect(tmp_path / "prefect.db")) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    assert {"flow_run", "task_run", "alembic_version"} <= tables


def test_a_database_that_is_there_stays(tmp_path) -> None:
    (tmp_path / "prefect.db").write_text("mine")
    lay_database(tmp_path)
    assert (tmp_path / "prefect.db").read_text() == "mine"
