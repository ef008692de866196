"""Held-out predictions by models without training."""

import numpy as np
import pandas as pd

from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import Split
from prefect_tune.tasks.final.ensemble import HeldOut
from prefect_tune.tasks.objective.metric import metric_named
from prefect_tune.tasks.objective.predictions import Predictions


def held_out_of(
    y: np.ndarray,
    predicted: np.ndarray,
    metric: str,
    *,
    fold: np.ndarray | None = None,
    groups: np.ndarray | None = None,
) -> HeldOut:
    """Return candidates for an ensemble.

    Args:
        y: Classes (whole numbers from 0) or numbers, shape (m,).
        predicted: Labels, shape (n, m), or scores of the classes, shape (n, m, c).
        metric: Name of the metric.
        fold: Fold of each row, shape (m,); one fold if left out.
        groups: Group of each row, shape (m,).
    """
    fold = np.zeros(len(y)) if fold is None else fold
    judge = metric_named(metric)
    classes = () if judge.target == "regression" else tuple(range(int(y.max()) + 1))
    frame = pd.DataFrame({"x": np.zeros(len(y))})
    dataset = Dataset("w", "table", frame, y.astype(np.int32) if classes else y, classes, groups)
    split = Split(fold.astype(np.int16), int(fold.max()) + 1, 0)
    rows = [split.held_out(k) for k in range(split.n_folds)]
    candidates = tuple(tuple(_predictions(of_model[r]) for r in rows) for of_model in predicted)
    return HeldOut(dataset, split, judge, candidates)


def _predictions(predicted: np.ndarray) -> Predictions:
    if predicted.ndim == 2:
        return Predictions(predicted.argmax(axis=1).astype(np.int32), predicted)
    return Predictions(predicted.astype(np.int32) if predicted.dtype.kind == "i" else predicted)


def noisy_classes(
    n_models: int, n_rows: int, skill: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return two classes, and models that predict each row correctly with probability `skill`."""
    y = rng.permutation(np.arange(n_rows) % 2)
    is_right = rng.random((n_models, n_rows)) < skill
    return y, np.where(is_right, y, 1 - y)
