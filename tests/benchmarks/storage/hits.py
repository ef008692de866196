"""The cost of a hit and a miss of the store, against Parquet, numpy and joblib.Memory.

    tests/benchmarks/run storage/hits

A dense matrix of 1 MB and of 50 MB on the local disk, with one and with two processes. Every figure
is the median of interleaved repetitions, in milliseconds.
"""

import multiprocessing
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import joblib
import numpy as np
import pyarrow.parquet as pq
from contracts.store import entry
from machine import Goals, describe, seconds_of

from prefect_tune.storage.artifacts import ArtifactStore, Made, StoreAddress
from prefect_tune.storage.keys import artifact_folder, digest
from prefect_tune.storage.matrices import canonical

SHAPES = {"1 MB": (1_300, 100), "50 MB": (65_536, 100)}
ROUNDS = 9


def identity(matrix: np.ndarray) -> np.ndarray:
    return matrix


class Contestants:
    """The same matrix stored by each contestant, with a way to read it back."""

    def __init__(self, folder: Path, shape: tuple[int, int]) -> None:
        self.matrix = canonical(np.random.default_rng(0).random(shape))
        self.cold = ArtifactStore(StoreAddress(str(folder / "store")), memory_bytes=0)
        self.warm = ArtifactStore(StoreAddress(str(folder / "store")))
        made = Made({"train": self.matrix}, {}, 1.0)
        self.kept, _ = self.cold.get_or_make(entry("a"), {}, lambda: made)
        part = self.kept.parts["train"]
        self.path = self.cold.files.path(artifact_folder(self.kept.key), part.file)
        self.npy = str(folder / "matrix.npy")
        np.save(self.npy, self.matrix)
        self.memory = joblib.Memory(str(folder / "joblib"), verbose=0).cache(identity)
        self.memory(self.matrix)

    def all(self) -> dict[str, Callable[[], object]]:
        return {
            "ours, nothing in memory": lambda: self._hit(self.cold),
            "ours, second hit": lambda: self._hit(self.warm),
            "joblib.Memory": lambda: self.memory(self.matrix),
            "numpy.load of a map, pages touched": lambda: np.load(self.npy, mmap_mode="r").sum(),
            "Parquet to numpy": self._parquet,
            "one digest of the file": lambda: digest(Path(self.path).read_bytes()),
        }

    def _hit(self, store: ArtifactStore) -> object:
        served, fresh = store.get_or_make(entry("a"), {}, lambda: None)
        assert fresh is None
        read = store.read(served, ["train"])
        return read["train"].sum() if store is self.warm else read

    def _parquet(self) -> np.ndarray:
        column = pq.read_table(self.path).column("values").combine_chunks()
        return column.flatten().to_numpy(zero_copy_only=False)


def measure(shape: tuple[int, int]) -> dict[str, float]:
    """Return the median milliseconds of each contestant, measured in turn."""
    with tempfile.TemporaryDirectory() as folder:
        contestants = Contestants(Path(folder), shape).all()
        times: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(ROUNDS):
            for name, read in contestants.items():
                times[name].append(1000 * seconds_of(read))
    return {name: median(values) for name, values in times.items()}


def misses(folder: Path) -> float:
    """Return the milliseconds of a cache miss of a small value, without encoding and writing."""
    store = ArtifactStore(StoreAddress(str(folder / "misses")), memory_bytes=0)
    made = Made({"train": canonical(np.random.default_rng(0).random((1_300, 100)))}, {}, 1.0)

    def write(name: str) -> None:
        store.files.publish("bare", name, store.files.encode("bare", made.parts))

    names = [f"{i:04x}" for i in range(40)]
    whole = [seconds_of(lambda n=n: store.get_or_make(entry(n), {}, lambda: made)) for n in names]  # type: ignore[misc]
    writing = [seconds_of(lambda n=n: write(n)) for n in names]  # type: ignore[misc]
    return 1000 * (median(whole) - median(writing))


def main() -> None:
    print(describe())
    goals = Goals()
    for size, shape in SHAPES.items():
        alone = measure(shape)
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            results = pool.map(measure, [shape, shape], chunksize=1)
        print(f"{size}: milliseconds at 1 process, and at 2")
        for name, milliseconds in alone.items():
            print(f"  {name:<36} {milliseconds:8.2f} {median(r[name] for r in results):8.2f}")
        if size == "50 MB":
            reference = alone["Parquet to numpy"] + alone["one digest of the file"]
            cold, second = alone["ours, nothing in memory"], alone["ours, second hit"]
            mapped = alone["numpy.load of a map, pages touched"]
            goals.at_most("first hit / (Parquet to numpy + digest)", cold / reference, 1.3)
            goals.at_most("second hit / numpy.load of a map", second / mapped, 1.5)
            goals.at_most("first hit / joblib.Memory", cold / alone["joblib.Memory"], 1.0)
    with tempfile.TemporaryDirectory() as folder:
        goals.at_most("miss on top of the write, ms", misses(Path(folder)), 5)
    goals.end()


if __name__ == "__main__":
    main()
