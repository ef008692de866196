"""Latency of a fitted pipeline, per row."""

from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

from prefect_tune.tasks.threads import one_thread

__all__ = ["BATCH", "latency_us"]

BATCH = 1_000
"""Rows that are predicted at once, or as many as there are."""
_LEAST_REPEATS = 5
_MOST_REPEATS = 50
_SECONDS = 0.2
"""Repeats go on for this long; a slow pipeline is measured for longer."""


def latency_us(pipeline: Any, X: Any, batch: int = BATCH) -> float:
    """Return microseconds per row: the median over predictions of one batch, after a warm-up.

    On one thread, so that pipelines are compared as they would serve side by side.

    Args:
        pipeline: What predicts.
        X: The rows to take the batch from, a frame or events.
        batch: How many rows to predict at once.
    """
    n = min(batch, len(X))
    rows = X.iloc[:n] if isinstance(X, pd.DataFrame) else X.take(np.arange(n))
    seconds: list[float] = []
    with one_thread():  # only time counts: the same model's held-out predictions were checked
        pipeline.predict(rows)
        while len(seconds) < _LEAST_REPEATS or (
            sum(seconds) < _SECONDS and len(seconds) < _MOST_REPEATS
        ):
            started = perf_counter()
            pipeline.predict(rows)
            seconds.append(perf_counter() - started)
    return 1e6 * float(np.median(seconds)) / n
