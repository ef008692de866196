"""Import of MEDS events: seconds and peak memory, from the files to a stored data set.

    tests/benchmarks/run tasks/import_events [--events 100000000] [--out FOLDER] [--shards 10]
        [--python PYTHON]

Writes events of 20,000 codes, 100 per subject, two fifths of them with values, shard by shard. The
shards have different subjects, assigned in turn, so the events must be sorted. Existing files in
FOLDER are used again. A new process reads the shards, stores the data set, and loads the data set
as a worker does. Memory is the largest resident set of this process, with mapped files. `--python`
names the interpreter of another checkout for comparison.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from machine import Goals, describe

N_CODES = 20_000
START, END = 1_262_304_000_000_000, 1_577_836_800_000_000
"""The years 2010 to 2019 in microseconds."""


def shard_of(n_subjects: int, n_events: int) -> pa.Table:
    """Return events of subjects 0, 1, ...: a birth, two static events, and many timed events."""
    rng = np.random.default_rng(0)
    timed = np.sort(rng.integers(0, n_subjects, n_events - 3 * n_subjects))
    owner = np.concatenate([np.repeat(np.arange(n_subjects), 3), timed])
    drawn = 2 + np.minimum(rng.zipf(1.3, len(timed)), N_CODES - 3)
    code = np.concatenate([np.tile([0, 1, 2], n_subjects), drawn]).astype(np.int32)
    time = np.concatenate([np.tile([0, 0, 1], n_subjects), rng.integers(START, END, len(timed))])
    order = np.lexsort((time, owner))
    owner, code, time = owner[order], code[order], time[order]
    labs = (f"LAB//{i:05}" for i in range(3, N_CODES))
    names = pa.array(["RACE//1", "SEX//1", "MEDS_BIRTH", *labs])
    has_value = (code > 2) & (code % 5 < 2)
    value = rng.normal(size=len(code)).astype(np.float32)
    return pa.table(
        {
            "subject_id": owner,
            "time": pa.array(time, pa.timestamp("us"), mask=code < 2),
            "code": pa.DictionaryArray.from_arrays(code, names).cast(pa.string()),
            "numeric_value": pa.array(value, mask=~has_value),
        }
    )


def write_data(folder: Path, n_events: int, n_shards: int) -> None:
    """Copy the events of a shard to other subjects, and write labels."""
    n_subjects, data = n_events // (100 * n_shards), folder / "data" / "train"
    data.mkdir(parents=True)
    table = shard_of(n_subjects, n_events // n_shards)
    for shard in range(n_shards):
        ids = pa.array(table.column("subject_id").to_numpy() * n_shards + shard + 1)
        pq.write_table(table.set_column(0, "subject_id", ids), data / f"{shard}.parquet")
    subjects = np.arange(n_subjects * n_shards) + 1
    labels = {
        "subject_id": subjects,
        "prediction_time": pa.array(np.full(len(subjects), END), pa.timestamp("us")),
        "boolean_value": subjects % 3 == 0,
    }
    (folder / "labels").mkdir(exist_ok=True)
    pq.write_table(pa.table(labels), folder / "labels" / "0.parquet")


def import_data(folder: Path) -> None:
    """Import in this process, and print the cost as JSON."""
    from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
    from prefect_tune.tasks.data.dataset import import_dataset, load_dataset
    from prefect_tune.tasks.data.reading import read_source
    from prefect_tune.tasks.data.source import Source

    with tempfile.TemporaryDirectory(dir=folder) as place:
        store = ArtifactStore(StoreAddress(place))
        started = perf_counter()
        dataset = read_source(Source(str(folder), labels=str(folder / "labels")))
        read = perf_counter()
        digest = import_dataset(dataset, store)
        stored = perf_counter()
        del dataset
        load_dataset(store, digest)
        seconds = {"read": read - started, "import": stored - started,
                   "load": perf_counter() - stored, "processor": sum(os.times()[:2])}  # fmt: skip
        store.close()
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "peak_bytes": peak_bytes}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--shards", type=int, default=10)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--import-only", action="store_true")
    given = parser.parse_args()
    if given.import_only:
        import_data(given.out)
        return
    print(describe())
    goals = Goals()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.out or Path(temporary)
        if not (folder / "labels").exists():
            write_data(folder, given.events, given.shards)
        command = [given.python, __file__, "--import-only", "--out", folder]
        printed = subprocess.check_output(command, text=True)
    found = json.loads(printed.splitlines()[-1])
    for what, seconds in found["seconds"].items():
        print(f"{what}: {seconds:.1f} s")
    goals.at_most("seconds to import", found["seconds"]["import"], 240 * given.events / 1e8)
    goals.at_most("GiB", found["peak_bytes"] / 2**30, 8)
    goals.end()


if __name__ == "__main__":
    main()
