"""The options that name a store."""

import shlex

import pytest

from prefect_tune.flows.store_location import DATABASE_VARIABLE, store_address, store_options
from prefect_tune.storage import StoreAddress

CLOSED = "postgresql+psycopg://ann:hidden@db/tune"


@pytest.fixture(autouse=True)
def of_home(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(tmp_path))
    monkeypatch.delenv(DATABASE_VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("store", "database"),
    [
        (None, None),
        ("my store", None),
        ("s3://bucket/store", "postgresql+psycopg://ann@db/tune"),
        (None, "sqlite:////data/index.sqlite"),
    ],
)
def test_they_name_the_store_that_was_named(store, database) -> None:
    address = store_address(store, database)
    words = store_options(address)
    given = dict(zip(words[::2], words[1::2], strict=True))
    assert store_address(given.get("--store"), given.get("--database")) == address
    assert ("--store" in given) == (store is not None)


def test_no_password_is_among_them(monkeypatch) -> None:
    address = StoreAddress("https://ann:hidden@host/store", CLOSED)
    assert "hidden" not in shlex.join(store_options(address))
    monkeypatch.setenv(DATABASE_VARIABLE, CLOSED)
    assert store_options(store_address("s3://b/s", None)) == ["--store", "s3://b/s"]
