"""Loading imported data in a process: seconds and private memory, mapped and from Parquet.

    tests/benchmarks/run tasks/loading [--data items.parquet --target bought] [--patients 100000]
        [--rows 1000000] [--columns 30] [--repeats 3] [--sandboxes]

Each load runs in a new process that has imported what a sandbox imports, and loaded a table of ten
rows, beside a process that has loaded the same data. Before: Parquet parts, which each process
decodes. After: Arrow parts, which the processes of a host map. Private memory is the growth of the
unique set size. The files are warm and each process has one thread. The two take turns, and the
least counts. `--sandboxes` also ends a sandbox and waits until the next one has the data.
"""

import argparse
import gc
import multiprocessing
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import psutil
from machine import Goals, describe

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.keys import dataset_record
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.data.dataset import Dataset, import_dataset, load_dataset
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import import_split, make_split
from prefect_tune.tasks.problem import Problem, StudyContext, open_store
from prefect_tune.tasks.sandbox.dask_runner import DaskTask
from prefect_tune.tasks.sandbox.sandbox import Limits, Sandbox
from prefect_tune.tasks.trial.evaluate import load as load_study

FORMS = ("before", "after")
SPAWN = multiprocessing.get_context("spawn")


def made_table(n: int, n_columns: int) -> Dataset:
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(n_columns)]
    X = pd.DataFrame(rng.normal(size=(n, n_columns)), columns=names)
    y = (X["x0"] > 0).to_numpy().astype(np.int32)
    return Dataset("large", "table", X, y, (False, True))


def data_sets(given: argparse.Namespace) -> Iterator[Dataset]:
    """The table of a file, a table of random numbers, and a cohort."""
    if given.data:
        yield read_source(Source(given.data, target=given.target))
    if given.rows:
        yield made_table(given.rows, given.columns)
    if given.patients:
        yield read_source(Source(f"cohort:paper?n_patients={given.patients}"))


def stored(dataset: Dataset, store: ArtifactStore, form: str) -> tuple[str, int]:
    """Keep a data set in a store; its digest, and the bytes of its parts."""
    former_bytes = store.records.size_bytes()
    digest = import_dataset(dataset, store)
    record = dataset_record(digest)
    if form == "before":
        parts = store.records.get(record)
        store.records.put(record, {k: v for k, v in parts.items() if k not in ("start", "stop")})
    return digest, store.records.size_bytes() - former_bytes


def kept(dataset: Dataset, folder: Path, form: str) -> tuple[StoreAddress, str, str, int, str]:
    """Keep ten rows, a data set and a split; the address, digests, and bytes of the data set."""
    address = StoreAddress(str(folder / form))
    store = ArtifactStore(address)
    few, _ = stored(made_table(10, 2), store, form)
    digest, size_bytes = stored(dataset, store, form)
    split = import_split(make_split(dataset, 3, 0.2, 0), store)
    store.close()
    return address, few, digest, size_bytes, split


def private_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_full_info().uss)


def load(address: StoreAddress, few: str, digest: str) -> tuple[float, int]:
    """Seconds and private bytes that the data takes in this process."""
    import prefect_tune.tasks.final.refit  # noqa: F401 - as a sandbox has

    store = open_store(address)
    load_dataset(store, few)
    before, started = private_bytes(), perf_counter()
    dataset = load_dataset(store, digest)
    seconds = perf_counter() - started
    assert len(dataset)
    return seconds, private_bytes() - before


def beside_another(*arguments: Any) -> tuple[float, int]:
    """What `load` returns in a new process while another one has the same data."""
    with SPAWN.Pool(1) as other, SPAWN.Pool(1) as pool:
        other.apply(load, arguments)
        return pool.apply(load, arguments)


def replaced(context: StudyContext) -> float:
    """Seconds from the end of a sandbox until the next one has loaded the data."""
    former = ready(context)
    started = perf_counter()
    former.end()
    new = ready(context)
    seconds = perf_counter() - started
    new.end()
    return seconds


def ready(context: StudyContext) -> Sandbox:
    """A sandbox that has loaded the data."""
    sandbox = Sandbox()
    arguments = {"context": context, "algorithms": ()}
    call = sandbox.call(load_study, arguments, Limits(), DaskTask())
    assert call.next_step() is None
    call.value()
    return sandbox


def context_of(address: StoreAddress, dataset: str, split: str, kind: str) -> StudyContext:
    space = space_named("healthcare" if kind == "events" else "modern")
    problem = Problem(dataset, split, space.name, space.digest, "error", 0)
    return StudyContext("loading", problem, address)


def measure(dataset: Dataset, given: argparse.Namespace, folder: Path, goals: Goals) -> None:
    here = {form: kept(dataset, folder, form) for form in FORMS}
    size_bytes = here["after"][3]
    print(f"\n{dataset.name}: {len(dataset)} x {dataset.n_features}, {size_bytes / 1e6:.1f} MB")
    rounds = [[beside_another(*here[form][:3]) for form in FORMS] for _ in range(given.repeats)]
    best: Any = np.min(rounds, axis=0)
    for form, (seconds, private) in zip(FORMS, best, strict=True):
        print(f"  {form}: {seconds:.3f} s, {private / 1e6:.2f} MB private")
    goals.at_most("  seconds, after / before", best[1, 0] / best[0, 0], 1)
    goals.at_most("  private memory / data", best[1, 1] / size_bytes, 0.1)
    print(f"  private memory, after / before: {best[1, 1] / best[0, 1]:.4f}")
    if given.sandboxes:
        for form in FORMS:
            address, _, digest, _, split = here[form]
            context = context_of(address, digest, split, dataset.kind)
            seconds = min(replaced(context) for _ in range(given.repeats))
            print(f"  new sandbox {form}: ready after {seconds:.3f} s")
        goals.at_most("  seconds until a new sandbox is ready", seconds, 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--target", default="target")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=30)
    parser.add_argument("--patients", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sandboxes", action="store_true")
    given = parser.parse_args()
    print(describe())
    goals = Goals()
    for dataset in data_sets(given):
        with tempfile.TemporaryDirectory() as folder:
            measure(dataset, given, Path(folder), goals)
    goals.end()


if __name__ == "__main__":
    main()
