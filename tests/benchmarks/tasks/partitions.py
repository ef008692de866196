"""What a night of a series constructs again if few of the patients have changed.

    tests/benchmarks/run tasks/partitions [--data DATA ...] [--share 0.02] [--folds 3] [--repeats 3]

Night 1 constructs the features of three configurations in each fold. On night 2, a share of the
patients has changed: the last ones are new (clustered), or patients at random have one event more.
Night 2 runs on the store of night 1, and once more on an empty store ("without"). Each night has
its own data in memory and opens the store anew, as a new worker does. Seconds are CPU seconds of
this process, writing to the store included, the least of the repeats. `blocks` are the seconds to
find, make and store the blocks of events; `assembly` is the rest of the step, reading included,
which depends on the fold. Goal: with 2 % of the patients changed, blocks take at most 10 %.

`histories:N` stands for N patients with 500 events each of 2,000 codes, as in records of hospitals;
in a cohort, most codes occur once in a patient.
"""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np
import pandas as pd
from machine import Goals, describe
from numpy.typing import NDArray

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.keys import content_digest
from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.catalogue.event_windows import EventWindows
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.problem import Problem, StudyContext
from prefect_tune.tasks.trial.shared_blocks import SharedBlocks

CONFIGURATIONS = (
    {},
    {"windows": "30_365", "aggregations": "count_recency_mean_min_max_last", "min_share": 0.01},
    {"windows": "30_365", "aggregations": "every", "scaling": "tfidf"},
)
PROBLEM = Problem("", "", "events", "", "error", 0)
N_EVENTS, N_CODES = 500, 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--data",
        nargs="+",
        default=["cohort:paper?n_patients=20000&family=average&seed=91", "histories:10000"],
    )
    parser.add_argument("--share", type=float, default=0.02)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    print(describe(), flush=True)
    goals = Goals()
    for data in chosen.data:
        compare(data, chosen, goals)
    print(describe())
    goals.end()


def compare(data: str, chosen: argparse.Namespace, goals: Goals) -> None:
    """Print the seconds of all nights on one data set."""
    events, rows = tables_of(data)
    patients = rows["subject_id"].unique()
    n_changed = round(chosen.share * len(patients))
    first = rows["subject_id"].isin(patients[: len(patients) - n_changed])
    at_random = np.random.default_rng(0).choice(patients, n_changed, replace=False)
    nights = {
        "clustered": ((events, rows[first]), (events, rows)),
        "random": ((events, rows), (one_more(events, at_random), rows)),
    }
    print(f"{data}: {len(patients)} patients, {len(events)} events, {n_changed} change")
    for name, (before, after) in nights.items():
        runs = [run(before, after, chosen.folds) for _ in range(chosen.repeats)]
        night_1, night_2, without, alone = np.min(runs, axis=0)
        for night, (blocks, assembly) in (
            ("night 1", night_1),
            ("night 2", night_2),
            ("night 2 without", without),
            ("no cache", alone),
        ):
            total = blocks + assembly
            print(
                f"  {name:10s} {night:16s} {total:6.2f} s: blocks {blocks:6.2f} s, "
                f"assembly {assembly:6.2f} s",
                flush=True,
            )
        print(f"  {name:10s} all seconds of the step: {night_2.sum() / without.sum():.0%}")
        goals.at_most(f"{data}, {name}: seconds of blocks", night_2[0] / without[0], 0.1)


def run(
    before: tuple[pd.DataFrame, pd.DataFrame], after: tuple[pd.DataFrame, pd.DataFrame], folds: int
) -> list[tuple[float, float]]:
    """Return the seconds of night 1, of night 2, of night 2 without night 1, and of no cache."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as empty:
        seconds = [night(*before, Path(folder), folds)[0]]
        spent, second = night(*after, Path(folder), folds)
        without, third = night(*after, Path(empty), folds)
    alone, fourth = night(*after, None, folds)
    for found, others in zip(second, zip(third, fourth, strict=True), strict=True):
        assert all(found == other for other in others), "matrices differ"
    return [*seconds, spent, without, alone]


def night(
    events: pd.DataFrame, rows: pd.DataFrame, folder: Path | None, folds: int
) -> tuple[tuple[float, float], list[str]]:
    """Return the seconds of blocks and of all else, and digests of all matrices."""
    X = EventRows.build(events, rows, need_events=False)
    address = StoreAddress(str(folder / "store")) if folder else None
    store = ArtifactStore(address) if address else None
    context = StudyContext("benchmark", PROBLEM, address) if address else None
    fold = np.random.default_rng(1).integers(folds, size=len(X))
    total, matrices, of_blocks = 0.0, [], [0.0]
    for arguments in CONFIGURATIONS:
        for number in range(folds):
            started = process_time()
            parts = [np.flatnonzero(fold != number), np.flatnonzero(fold == number)]
            shared = SharedBlocks(store, X, context, len(parts[0])) if store else None
            with counted(shared, of_blocks):
                made = list(construct(X, parts, shared, arguments))
            total += process_time() - started
            matrices.append(content_digest("matrices", (m.tobytes() for m in made)))
    if store is not None:
        store.close()
    return (of_blocks[0], total - of_blocks[0]), matrices


def construct(
    X: EventRows, parts: list[NDArray[np.intp]], shared: SharedBlocks | None, arguments: dict
) -> Iterator[NDArray]:
    """Yield the arrays of the training and of the held-out matrix."""
    chosen = [X.take(rows) for rows in parts]
    if shared is not None:
        chosen = [
            replace(some, positions=rows, shared=shared)
            for some, rows in zip(chosen, parts, strict=True)
        ]
    estimator = EventWindows(**arguments).fit(chosen[0])
    for some in chosen:
        matrix = canonical(estimator.transform(some))
        yield from (matrix.data, matrix.indices, matrix.indptr)
    if shared is not None:
        shared.release()


@contextmanager
def counted(shared: SharedBlocks | None, seconds: list[float]) -> Iterator[None]:
    """Add the seconds in which blocks are found, made and stored."""
    if shared is None:
        yield
        return
    blocks = shared.blocks

    def measured(*arguments: object) -> object:
        started = process_time()
        try:
            return blocks(*arguments)
        finally:
            seconds[0] += process_time() - started

    shared.blocks = measured
    yield


def tables_of(data: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return events and rows of a source, or of patients with long histories."""
    if not data.startswith("histories:"):
        X = read_source(Source(data)).X
        return X.events, X.rows
    n = int(data.partition(":")[2])
    rng = np.random.default_rng(0)
    own = (rng.zipf(1.2, (n, 150)) - 1) % N_CODES
    picked = np.minimum(rng.exponential(25, (n, N_EVENTS)).astype(int), 149)
    codes = np.take_along_axis(own, picked, 1).ravel()
    names = np.array([f"{('LAB', 'DX', 'RX')[c % 3]}//{c // 10}/{c}" for c in range(N_CODES)])
    now = np.datetime64("2020-01-01", "us")
    days = np.sort(rng.gamma(1, 600, (n, N_EVENTS)), 1)[:, ::-1].ravel()
    values = np.where(codes % 3 == 0, rng.normal(codes % 17, 1).round(2), np.nan)
    events = pd.DataFrame(
        {
            "subject_id": np.repeat(np.arange(n), N_EVENTS),
            "time": now - (days * 86_400e6).astype("timedelta64[us]"),
            "code": pd.Categorical(names[codes]),
            "value": values,
        }
    )
    return events, pd.DataFrame({"subject_id": np.arange(n), "prediction_time": now})


def one_more(events: pd.DataFrame, patients: NDArray) -> pd.DataFrame:
    """Repeat the last event of some patients a second later, or earlier if nothing is seen then."""
    last = events[events["subject_id"].isin(patients)].drop_duplicates("subject_id", keep="last")
    new = last.assign(time=last["time"] - pd.Timedelta(days=1))
    return pd.concat([events, new], ignore_index=True)


if __name__ == "__main__":
    main()
