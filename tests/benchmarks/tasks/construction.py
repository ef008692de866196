"""The cohort of the FLASH paper: generating it, and constructing features from its events.

    tests/benchmarks/run tasks/construction

Beside the paper's construction a pandas groupby and pivot of the same work, which must give the
same matrix; and one block of columns of 8.7 million events. On Linux, whose allocator can be
told to give back what is free.
"""

import ctypes
import resource
import threading
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import psutil
from machine import Goals, describe, seconds_of

from prefect_tune.tasks.catalogue.construction import EventAggregation
from prefect_tune.tasks.catalogue.event_blocks import Block, Vocabulary, make_blocks
from prefect_tune.tasks.data.cohort import cohort_named, generate
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.trial.shared_blocks import partitions_of

THRESHOLD = 5
AGGREGATIONS = ("binary", "count", "sum", "average")


def measured(act: Callable[[], Any]) -> tuple[Any, float, int]:
    """What it gives, seconds, and the bytes by which the process was larger at its peak."""
    process, is_over, peak = psutil.Process(), threading.Event(), [0]

    def watch() -> None:
        while not is_over.wait(0.001):
            peak[0] = max(peak[0], process.memory_info().rss)

    # What was freed before goes back to the system, so that using it again counts.
    ctypes.CDLL(None).malloc_trim(0)
    before = process.memory_info().rss
    watcher = threading.Thread(target=watch)
    watcher.start()
    started = perf_counter()
    came = act()
    seconds = perf_counter() - started
    is_over.set()
    watcher.join()
    return came, seconds, max(peak[0], process.memory_info().rss) - before


def ours(X: EventRows, aggregation: str) -> tuple[list[str], Any]:
    construct = EventAggregation(THRESHOLD, aggregation).fit(X)
    return construct.codes_, construct.transform(X)


def by_pandas(X: EventRows, aggregation: str) -> tuple[list[str], np.ndarray]:
    """One row per patient, so a patient's number is that of its row."""
    frame = X.events.merge(X.rows, on="subject_id")
    frame = frame[frame["time"] <= frame["prediction_time"]]
    had_by = frame.groupby("code", observed=True)["subject_id"].nunique()
    frame = frame[frame["code"].isin(had_by.index[had_by >= THRESHOLD])]
    groups = frame.groupby(["subject_id", "code"], observed=True)["value"]
    cells = {"binary": groups.size, "count": groups.size, "sum": groups.sum, "average": groups.mean}
    made = cells[aggregation]().unstack(fill_value=0)
    made = made.reindex(index=X.rows["subject_id"], fill_value=0).sort_index(axis=1)
    matrix = made.to_numpy(dtype=np.float64)
    return list(made.columns), matrix > 0 if aggregation == "binary" else matrix


def main() -> None:
    print(describe())
    goals = Goals()
    cohort, seconds, size = measured(lambda: generate(cohort_named("paper")))
    goals.at_most(f"generating {len(cohort.events)} events, s", seconds, 20)
    goals.at_most("  peak memory above that before, GB", size / 1e9, 4)
    del cohort
    dataset, seconds, _ = measured(lambda: read_source(Source("cohort:paper")))
    goals.at_most("generating and sorting them into a data set, s", seconds, 20)
    peak_kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    goals.at_most("  peak memory of the process, GB", peak_kilobytes / 1e6, 4)
    X = dataset.X
    assert isinstance(X, EventRows)
    table_bytes = int(X.events.memory_usage(index=False, deep=True).sum())
    print(f"{len(X)} patients, {len(X.codes)} codes, events table of {table_bytes / 1e6:.0f} MB")
    for aggregation in AGGREGATIONS:
        (codes, matrix), first, size = measured(lambda a=aggregation: ours(X, a))
        seconds = median([first, *(measured(lambda a=aggregation: ours(X, a))[1] for _ in "12")])
        print(f"{aggregation}: {matrix.shape[0]} x {matrix.shape[1]}, {matrix.nnz} values")
        goals.at_most("  fit and transform, s", seconds, 10)
        goals.at_most("  peak memory / events table", size / table_bytes, 3)
        (names, expected), pandas_seconds, size = measured(lambda a=aggregation: by_pandas(X, a))
        assert names == codes
        np.testing.assert_allclose(matrix.toarray(), expected, rtol=1e-12)
        print(f"  pandas: {pandas_seconds:.2f} s, {size / table_bytes:.1f} x the events table")
        goals.at_least("  pandas / ours", pandas_seconds / seconds, 3)
        del expected
    del X, dataset
    X = read_source(Source("cohort:paper?n_patients=200000")).X
    assert isinstance(X, EventRows)
    vocabulary, partitions = Vocabulary.of(X), partitions_of(X)

    def one_block() -> None:
        for partition in partitions:
            list(make_blocks(partition.X, [Block("count")], vocabulary))

    seconds = min(seconds_of(one_block) for _ in "123")
    goals.at_most(
        f"one block of {len(X.events)} events in {len(partitions)} partitions, s", seconds, 1
    )
    goals.end()


if __name__ == "__main__":
    main()
