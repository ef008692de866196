"""Helpers that put, use and count artifacts in a store."""

from typing import Any

import numpy as np
from sqlalchemy import inspect, select

from prefect_tune.storage.artifacts import ArtifactStore, Made
from prefect_tune.storage.index import Entry
from prefect_tune.storage.matrices import canonical
from prefect_tune.storage.schema import store_table


def entry(key: str, **values: Any) -> Entry:
    plain = {"parent": None, "study": "s", "step": "rescale", "algorithm": "minmax", "fold": 0}
    return Entry(key=key.ljust(64, "0"), cost_seconds=0.0, summary={}, **{**plain, **values})


def made(n: int = 1000, seconds: float = 2.0) -> Made:
    matrix = canonical(np.random.default_rng(n).random((n, 1)))
    return Made({"train": matrix}, {"rows": n}, seconds)


def put(
    store: ArtifactStore, key: str, n: int = 1000, seconds: float = 2.0, **values: Any
) -> Entry:
    return store.write(entry(key, **values), made(n, seconds), {"key": key})


def use(store: ArtifactStore, key: str) -> None:
    (found,) = store.index.entries([key.ljust(64, "0")]).values()
    store.index.count_hit(found)


def schema_of(store: ArtifactStore) -> tuple[int, set[str]]:
    """Return the schema number, and the names of the tables."""
    with store.database.read() as connection:
        number = connection.execute(select(store_table.c.schema)).scalar_one()
        return number, set(inspect(connection).get_table_names())


def present(store: ArtifactStore) -> set[str]:
    return {e.key.rstrip("0") for e in store.index.select()}
