"""Connections end with the database that made them, also where nobody closes it."""

import gc
import sqlite3

import pytest

from prefect_tune.storage.database import Database


def test_a_database_that_nobody_holds_closes_its_connections(tmp_path) -> None:
    database = Database(f"sqlite:///{tmp_path}/index.sqlite")
    with database.read() as connection:
        raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    raw.execute("SELECT 1")
    del database, connection
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        raw.execute("SELECT 1")
