"""An index of a million artifacts beside one of a thousand.

    tests/benchmarks/run storage/large_index [--rows 1000000]

Looking up, putting, evicting one in a hundred, and listing the newest fifty.
"""

import argparse
import tempfile
from collections.abc import Iterator
from statistics import median
from time import perf_counter, time
from typing import Any

import numpy as np
from contracts.store import entry
from machine import Goals, describe, seconds_of
from sqlalchemy import insert, update

from prefect_tune.storage import ArtifactStore, StoreAddress
from prefect_tune.storage.cache.entry import Selection
from prefect_tune.storage.inspection import list_artifacts
from prefect_tune.storage.schema import artifact_table, store_table

SIZE = 100_000


def rows(n: int) -> Iterator[dict[str, Any]]:
    part = {"file": "p/train.parquet", "digest": "0" * 64, "size_bytes": SIZE, "codec": "dense"}
    now = time()
    for i in range(n):
        yield {
            "key": key(i), "parent": None, "study": f"s{i % 100}", "step": "rescale",
            "algorithm": "minmax", "fold": i % 3, "is_present": True, "size_bytes": SIZE,
            "cost_seconds": 1.0, "created": now - n + i, "last_used": now - n + i, "hits": 0,
            "facts": {"rows": 100}, "parts": {"train": part}, "place": f"p{i}", "is_cheap": False,
        }  # fmt: skip


def key(i: int) -> str:
    """Keys are spread as hashes are."""
    return f"{(i * 2654435761) % 2**32:08x}{i:056x}"


def filled(folder: str, n: int) -> ArtifactStore:
    store = ArtifactStore(StoreAddress(folder), 2 * n * SIZE)
    batch: list[dict[str, Any]] = []
    with store.database.write() as connection:
        for row in rows(n):
            batch.append(row)
            if len(batch) == 10_000:
                connection.execute(insert(artifact_table), batch)
                batch = []
        if batch:
            connection.execute(insert(artifact_table), batch)
        connection.execute(update(store_table).values(cache_bytes=n * SIZE))
    return store


def timed(act: Any, arguments: list[Any]) -> float:
    """Median milliseconds."""
    return median(1000 * seconds_of(act, argument) for argument in arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    n_large = parser.parse_args().rows
    print(describe())
    goals, figures = Goals(), {}
    for n in (1_000, n_large):
        with tempfile.TemporaryDirectory() as folder:
            store = filled(folder, n)
            chance = np.random.default_rng(0)
            chosen = [key(int(i)) for i in chance.integers(0, n, 200)]
            new = [entry(f"{i:08x}f") for i in range(200)]
            get = timed(store.index.entries, [[name] for name in chosen])
            figures[n] = (get, timed(store.cache.admit, new))
            print(f"{n} rows: get {figures[n][0]:.3f} ms, put {figures[n][1]:.3f} ms")
            if n == n_large:
                started = perf_counter()
                gone = store.cache.shrink(n * SIZE - n // 100 * SIZE)
                goals.at_most(f"evicting {len(gone)}, s", perf_counter() - started, 10)
                newest = seconds_of(list_artifacts, store, Selection(limit=50))
                goals.at_most("listing the newest 50, s", newest, 1)
            store.close()
    for position, what in enumerate(("get", "put")):
        ratio = figures[n_large][position] / figures[1_000][position]
        goals.at_most(f"{what} at {n_large} rows / at 1000", ratio, 2)
    goals.end()


if __name__ == "__main__":
    main()
