"""Loading imported data in a process: seconds and private memory.

    tests/benchmarks/run tasks/loading [--rows 1000000] [--columns 30] [--repeats 3] [--sandboxes]

Each load runs in a new process with the imports of a sandbox and a loaded table of ten rows, next
to a process that has loaded the same data. Private memory is the growth of the unique set size. The
files are in the page cache, each process has one thread, and the least of the repeats counts.
`--sandboxes` also ends a sandbox and waits until the next sandbox has the data.
"""

import argparse
import gc
import multiprocessing
import tempfile
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import psutil
from machine import Goals, describe, seconds_of

from prefect_tune.storage.artifacts import StoreAddress
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.data.dataset import Dataset, import_dataset, load_dataset
from prefect_tune.tasks.data.split import import_split, make_split
from prefect_tune.tasks.problem import Problem, StudyContext, open_store
from prefect_tune.tasks.sandbox.dask_runner import DaskTask
from prefect_tune.tasks.sandbox.sandbox import Limits, Sandbox
from prefect_tune.tasks.trial.evaluate import load as load_study

SPAWN = multiprocessing.get_context("spawn")


def random_table(n: int, n_columns: int) -> Dataset:
    names = [f"x{i}" for i in range(n_columns)]
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(n, n_columns)), columns=names)
    return Dataset("large", "table", X, (X["x0"] > 0).to_numpy().astype(np.int32), (False, True))


def private_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_full_info().uss)


def load(address: StoreAddress, few: str, digest: str) -> tuple[float, int]:
    """Return the seconds and private bytes that loading the data takes in this process."""
    import prefect_tune.tasks.final.refit  # noqa: F401 - as a sandbox has

    store = open_store(address)
    load_dataset(store, few)
    before, started = private_bytes(), perf_counter()
    dataset = load_dataset(store, digest)
    seconds = perf_counter() - started
    assert len(dataset)
    return seconds, private_bytes() - before


def beside_another(*arguments: Any) -> tuple[float, int]:
    """Return the result of `load` in a new process while another process has loaded the data."""
    with SPAWN.Pool(1) as other, SPAWN.Pool(1) as pool:
        other.apply(load, arguments)
        return pool.apply(load, arguments)


def ready(context: StudyContext) -> Sandbox:
    """Return a sandbox that has loaded the data."""
    sandbox = Sandbox()
    arguments = {"context": context, "algorithms": ()}
    call = sandbox.call(load_study, arguments, Limits(), DaskTask())
    assert call.next_step() is None
    call.value()
    return sandbox


def replaced(context: StudyContext) -> float:
    """Return the seconds from the end of a sandbox until the next sandbox has loaded the data."""
    sandboxes = [ready(context)]

    def replace() -> None:
        sandboxes[0].end()
        sandboxes.append(ready(context))

    seconds = seconds_of(replace)
    sandboxes[1].end()
    return seconds


def measure(dataset: Dataset, given: argparse.Namespace, folder: str, goals: Goals) -> None:
    address = StoreAddress(folder)
    store = open_store(address)
    few = import_dataset(random_table(10, 2), store)
    before = store.records.size_bytes()
    digest = import_dataset(dataset, store)
    size_bytes = store.records.size_bytes() - before
    print(f"{len(dataset)} x {dataset.n_features}, {size_bytes / 1e6:.1f} MB")
    rounds = [beside_another(address, few, digest) for _ in range(given.repeats)]
    seconds, private = np.min(rounds, axis=0)
    print(f"  {seconds:.3f} s, {private / 1e6:.2f} MB private")
    goals.at_most("  private memory / data", private / size_bytes, 0.1)
    if given.sandboxes:
        split = import_split(make_split(dataset, 3, 0.2, 0), store)
        space = space_named("modern")
        problem = Problem(digest, split, space.name, space.digest, "error", 0)
        context = StudyContext("loading", problem, address)
        seconds = min(replaced(context) for _ in range(given.repeats))
        goals.at_most("  seconds until a new sandbox is ready", seconds, 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sandboxes", action="store_true")
    given = parser.parse_args()
    print(describe())
    goals = Goals()
    with tempfile.TemporaryDirectory() as folder:
        measure(random_table(given.rows, given.columns), given, folder, goals)
    goals.end()


if __name__ == "__main__":
    main()
