"""Whose trouble an error is, by real errors where this machine can make them."""

import errno
import os
import sqlite3

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from prefect_tune.storage.waiting.outage import Cause, cause_of


@pytest.mark.parametrize(
    ("names", "cause"),
    [
        (["EIO", "ESTALE", "ENOTCONN", "EHOSTDOWN", "ETIMEDOUT"], Cause.AWAY),
        (["ECONNREFUSED", "ECONNRESET", "ENETRESET", "ENOLINK", "EAGAIN"], Cause.AWAY),
        (["ENOSPC", "EDQUOT"], Cause.FULL),
        (["EROFS", "EACCES", "EPERM"], Cause.FORBIDDEN),
        (["EMFILE", "ENFILE", "ENOMEM"], Cause.PROCESS),
        (["ENOENT", "ENOTDIR", "EEXIST", "EFBIG"], None),
    ],
)
def test_an_errno_tells_the_store_from_the_process(names, cause) -> None:
    for name in names:
        number = getattr(errno, name)
        assert cause_of(OSError(number, os.strerror(number))) == cause


def sqlite_error(*statements: str, path: str = ":memory:", **options: bool) -> sqlite3.Error:
    connection = None
    try:
        connection = sqlite3.connect(path, **options)
        for statement in statements:
            connection.execute(statement)
    except sqlite3.Error as error:
        return error
    finally:
        if connection is not None:
            connection.close()
    raise AssertionError("there was no error")


def test_a_database_that_is_full_forbidden_or_not_there(tmp_path) -> None:
    filled = sqlite_error(
        "PRAGMA max_page_count=2", "CREATE TABLE a (b)", "INSERT INTO a VALUES (zeroblob(100000))"
    )
    assert cause_of(filled) == Cause.FULL
    path = tmp_path / "a.sqlite"
    sqlite3.connect(path).close()
    read_only = sqlite_error("CREATE TABLE a (b)", path=f"file:{path}?mode=ro", uri=True)
    assert cause_of(read_only) == Cause.FORBIDDEN
    gone = sqlite_error("CREATE TABLE a (b)", path=str(tmp_path / "gone" / "a.sqlite"))
    assert cause_of(gone) == Cause.AWAY
    assert cause_of(sqlite_error("SELECT * FROM nothing")) is None


def test_the_drivers_error_counts_behind_that_of_sqlalchemy(tmp_path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/gone/a.sqlite")
    with pytest.raises(OperationalError) as caught, engine.connect() as connection:
        connection.execute(text("SELECT 1"))
    assert cause_of(caught.value) == Cause.AWAY


class RefusalError(Exception):
    """An answer of an object store, as the clients of its kinds describe it."""

    def __init__(self, **about: object) -> None:
        super().__init__("refused")
        vars(self).update(about)


@pytest.mark.parametrize(
    "about",
    [
        {"response": {"Error": {"Code": "QuotaExceeded"}}},
        {"response": {"Error": {"Code": "X"}, "ResponseMetadata": {"HTTPStatusCode": 507}}},
        {"status": 507},
        {"status_code": 507},
        {"sqlstate": "53100"},
    ],
)
def test_a_server_without_room_is_full_also_behind_the_error_of_fsspec(about) -> None:
    refusal = RefusalError(**about)
    assert cause_of(refusal) == Cause.FULL
    wrapped = OSError(errno.EIO, "refused")
    wrapped.__cause__ = refusal
    assert cause_of(wrapped) == Cause.FULL
    assert cause_of(RefusalError(status=503, code="SlowDown")) is None
