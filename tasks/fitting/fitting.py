"""Fitting of one step on one fold: plain functions without cache or Prefect.

scikit-learn 1.9 sorts each column once per weighted percentile, 254 times. The sorting takes nine
tenths of the time for a weighted fit of histogram boosting on 100,000 rows. Later versions sort
less often (scikit-learn pull request 34248).
"""

import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from threading import local
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.ensemble._hist_gradient_boosting import binning
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight

from prefect_tune.storage.artifacts import Made
from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.fitting.recipe import (
    MEMORY_RULES,
    MatrixSummary,
    Recipe,
    build,
    check_memory,
    imported,
)
from prefect_tune.tasks.objective.predictions import Predictions, n_rows, predictions_of
from prefect_tune.tasks.threads import fit_threads, several_threads


@cache
def quick_weighted_bins() -> None:
    """Patch scikit-learn's histogram boosting to bin weighted rows with one sort per column."""
    slow = getattr(binning, "_weighted_percentile", None)
    if slow is None:
        return
    last = local()  # several threads bin columns

    def percentile(column: Any, weights: Any, rank: Any, **options: Any) -> Any:
        if np.ndim(rank):
            return slow(column, weights, rank, **options)
        if getattr(last, "column", None) is not column:  # begin with the lowest percentile
            ranks = np.linspace(0, 100, round(100 / rank) + 1)[1:-1]
            found = slow(column, weights, ranks, **options)
            last.column, last.found = column, dict(zip(ranks.tolist(), found, strict=True))
        return last.found[float(rank)]

    binning._weighted_percentile = percentile  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class FoldData:
    """Data of one fold: training rows and held-out rows.

    Attributes:
        y: Targets of the training rows, shape (n,): classes in the user's spelling, or numbers.
        classes: All classes, sorted; empty for regression.
        memory_limit_bytes: Memory limit of a fit; None for the machine's memory.
        n_rows_in_all: Number of rows that must fit in memory; None for the number of rows in
            `train`.
        most_threads: Largest number of threads that a fit may use.
    """

    train: Any
    held_out: Any
    y: NDArray[Any]
    classes: NDArray[Any]
    memory_limit_bytes: int | None = None
    n_rows_in_all: int | None = None
    most_threads: int = 1

    @property
    def n_cells(self) -> int:
        """Number of values of the training rows, not counting zeros of a sparse matrix."""
        rows, columns = self.train.shape
        return int(self.train.nnz) if sparse.issparse(self.train) else rows * columns

    def threads_for(self, estimator: Any, how: Recipe) -> AbstractContextManager[None]:
        """Let `estimator` (without repairs) fit in several threads if this is faster."""
        n_threads = fit_threads(self.n_cells, self.most_threads)
        return several_threads(estimator, how.threads, n_threads)


def fit_transformer(how: Recipe, seed: int, data: FoldData) -> Made:
    """Fit a transformer; return the parts `estimator`, `train` and `held_out`, and a summary.

    Raises:
        WillNotFit: If the step would need too much memory.
        ValueError: If no column is left or a value is not finite. Errors of the estimator are also
            raised.
    """
    imported(how.estimator)  # the import is not part of the step's cost
    started = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the search needs no advice on settings
        if how.out_of_fold:
            check_fits(how, data)
            estimator = build(how, seed)
            fitted = estimator.fit_transform(data.train, data.y)
        else:
            estimator = _fit(how, seed, data)
            fitted = estimator.transform(data.train)
        train = canonical(fitted)
        begun = perf_counter()
        held_out = canonical(transformed(estimator, data.held_out, train))
        held_out_seconds = perf_counter() - begun
    for matrix in (train, held_out):
        if matrix.shape[1] == 0:
            raise ValueError(f"{how.algorithm} leaves no column")
        values = matrix.data if sparse.issparse(matrix) else matrix
        is_real = isinstance(values, np.ndarray) and values.dtype.kind == "f"
        if is_real and not np.isfinite(values).all():
            raise ValueError(f"{how.algorithm} returns values that are not finite")
    return Made(
        {"estimator": estimator, "train": train, "held_out": held_out},
        MatrixSummary.of(train).to_json(),
        perf_counter() - started,
        held_out_seconds=held_out_seconds,
    )


def fit_model(how: Recipe, seed: int, data: FoldData) -> tuple[Made, Predictions]:
    """Fit a model; return the part `estimator`, and the held-out predictions.

    Raises:
        WillNotFit: If the step would need too much memory.
        InvalidPredictions: If the estimator does not predict one label for each row.
        Exception: If the estimator raises any error.
    """
    imported(how.estimator)
    started = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = _fit(how, seed, data)
        begun = perf_counter()
        predictions = predictions_of(estimator, data.held_out, data.classes, name=how.algorithm)
        held_out_seconds = perf_counter() - begun
    made = Made(
        {"estimator": estimator},
        MatrixSummary.of(data.train).to_json(),
        perf_counter() - started,
        held_out_seconds=held_out_seconds,
    )
    return made, predictions


def transformed(estimator: Any, X: Any, train: Any) -> Any:
    """Return transformed rows.

    If there are no rows, return an empty part of `train`, because estimators reject empty input.
    """
    return estimator.transform(X) if n_rows(X) else train[:0]


def check_fits(how: Recipe, data: FoldData) -> None:
    """Raise `WillNotFit` if fitting a step on all training rows would need too much memory."""
    summary = MatrixSummary.of(data.train)
    summary = replace(summary, rows=max(summary.rows, data.n_rows_in_all or 0))
    rules = [how.memory, *([MEMORY_RULES["dense_matrix"]] if "write_out" in how.repairs else [])]
    name = how.estimator.rsplit(".", 1)[-1]
    check_memory(name, rules, how.arguments, summary, limit_bytes=data.memory_limit_bytes)


def _fit(how: Recipe, seed: int, data: FoldData) -> Any:
    check_fits(how, data)
    if how.weights == "class_weight":  # `partial_fit` rejects "balanced" but accepts numbers
        how = replace(how, arguments={**how.arguments, "class_weight": class_weights(data.y)})
    estimator = build(how, seed)
    weights = {}
    if how.weight_argument:
        weights = {how.weight_argument: compute_sample_weight("balanced", data.y)}
        quick_weighted_bins()
    with data.threads_for(how.model_in(estimator), how):
        return estimator.fit(data.train, data.y, **weights)


def class_weights(y: NDArray[Any]) -> dict[Any, float]:
    """Return the weight of each class: the inverse of its frequency."""
    classes = np.unique(y)
    weights = compute_class_weight("balanced", classes=classes, y=y)
    return dict(zip(classes, weights.tolist(), strict=True))
