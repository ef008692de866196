"""Loading an imported table of a million rows and 50 columns beside what pyarrow takes for it.

    tests/benchmarks/run tasks/loading [--rows 1000000] [--repeats 5]

Ours: from the table that the store keeps as Parquet to the frame that a worker's steps are given,
the digest of the file checked. Theirs: `pyarrow.parquet.read_table` of the same file, and
`to_numpy` of each column; putting them together to one matrix, which a frame does not need, is
shown beside it. Both on warm files, with one thread as a worker has, in turns; the fastest counts.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from machine import Goals, describe, seconds_of

from prefect_tune.storage import ArtifactStore, StoreAddress
from prefect_tune.tasks.data.dataset import Dataset, import_dataset, load_dataset

N_COLUMNS = 50


def table(n: int) -> Dataset:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, N_COLUMNS)), columns=[f"x{i}" for i in range(N_COLUMNS)])
    y = (X["x0"] > 0).to_numpy().astype(np.int32)
    return Dataset("large", "table", X, y, (False, True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    print(describe())
    goals = Goals()
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory() as folder:
        store = ArtifactStore(StoreAddress(folder))
        digest = import_dataset(table(given.rows), store)
        (file,) = Path(folder).glob("records/**/X.parquet")
        print(f"{given.rows} x {N_COLUMNS}, {file.stat().st_size / 1e6:.0f} MB as Parquet")

        def ours() -> Dataset:
            load_dataset.cache_clear()
            return load_dataset(store, digest)

        def theirs() -> list[Any]:
            return [column.to_numpy() for column in pq.read_table(file).columns]

        def stacked() -> Any:
            return np.column_stack(theirs())

        rounds = [
            [seconds_of(act) for act in (ours, theirs, stacked)] for _ in range(given.repeats)
        ]
        ours_seconds, theirs_seconds, stacked_seconds = np.min(rounds, axis=0)
        print(f"ours {ours_seconds:.2f} s, theirs {theirs_seconds:.2f} s")
        print(f"theirs as one matrix {stacked_seconds:.2f} s")
        goals.at_most("ours / theirs", ours_seconds / theirs_seconds, 1.5)
        store.close()
    goals.end()


if __name__ == "__main__":
    main()
