"""Fitting one step on one fold: plain functions without cache or Prefect.

For weighted rows, scikit-learn's histogram boosting gets its bins from one sort per column, with
equal results. scikit-learn 1.9 sorts the column for each of 254 weighted percentiles, nine tenths
of a weighted fit on 100,000 rows (scikit-learn pull request 34248, fixed in later versions).
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from threading import Lock, local
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight

from prefect_tune.storage.artifacts import Made
from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.fitting.memory_estimate import MatrixSummary, check_memory
from prefect_tune.tasks.fitting.recipe import Recipe, build, imported
from prefect_tune.tasks.objective.predictions import Predictions, n_rows, predictions_of
from prefect_tune.tasks.threads import fit_threads, several_threads

_BOOSTING = "sklearn.ensemble._hist_gradient_boosting."
_SLOW = "_weighted_percentile"
_ONE_AT_A_TIME = Lock()


@contextmanager
def quick_weighted_bins(estimator: Any) -> Iterator[None]:
    """Speed up the binning of weighted rows in histogram boosting; no effect on others."""
    if not type(estimator).__module__.startswith(_BOOSTING):
        yield
        return
    from sklearn.ensemble._hist_gradient_boosting import binning  # noqa: PLC0415 - slow import

    if not hasattr(binning, _SLOW):
        yield
        return
    with _ONE_AT_A_TIME:
        original = getattr(binning, _SLOW)
        setattr(binning, _SLOW, _PercentilesOfColumns(original))
        try:
            yield
        finally:
            setattr(binning, _SLOW, original)


class _PercentilesOfColumns:
    """Serves the percentiles of a column, requested one by one, from one call for all of them."""

    def __init__(self, percentiles: Callable[..., Any]) -> None:
        self._percentiles = percentiles
        self._last = local()  # several threads bin columns

    def __call__(
        self, column: NDArray[Any], weights: NDArray[Any], asked: float, **options: Any
    ) -> Any:
        """Return one percentile; callers request a column's lowest percentile first."""
        if np.ndim(asked):
            return self._percentiles(column, weights, asked, **options)
        if getattr(self._last, "column", None) is not column:
            bounds = np.linspace(0, 100, round(100 / asked) + 1)[1:-1]
            values = self._percentiles(column, weights, bounds, **options)
            self._last.column = column
            self._last.known = dict(zip(bounds.tolist(), values, strict=True))
        known = self._last.known.get(float(asked))
        return self._percentiles(column, weights, asked, **options) if known is None else known


@dataclass(frozen=True, slots=True)
class FoldData:
    """Data of one fold: rows to learn from and rows to be judged on.

    Attributes:
        y: Classes of the training rows as the user wrote them, or their numbers, shape (n,).
        classes: All classes, sorted; empty if numbers are predicted.
        memory_limit_bytes: Memory limit of a fit; None for the machine's memory.
        n_rows_in_all: Number of rows that must fit in memory; None for the rows of `train`.
        most_threads: Most threads a fit may use if they pay off.
    """

    train: Any
    held_out: Any
    y: NDArray[Any]
    classes: NDArray[Any]
    memory_limit_bytes: int | None = None
    n_rows_in_all: int | None = None
    most_threads: int = 1

    def threads_for(self, estimator: Any, how: Recipe) -> AbstractContextManager[None]:
        """Give a fit of `estimator`, without its repairs, the threads that pay off."""
        rows, columns = self.train.shape
        n_cells = self.train.nnz if sparse.issparse(self.train) else rows * columns
        return several_threads(estimator, how.threads, fit_threads(n_cells, self.most_threads))


def fit_transformer(how: Recipe, seed: int, data: FoldData) -> Made:
    """Fit on the training rows; return parts `estimator`, `train` and `held_out`, with a summary.

    Raises:
        WillNotFit: If the step would need too much memory.
        ValueError: If no column is left or a value is not finite, and any error of the estimator.
    """
    started = _started(how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on settings; the search learns from losses
        estimator, fitted = _fit_to_transform(how, seed, data)
        train = canonical(fitted)
        begun = perf_counter()
        parts = {
            "train": train,
            "held_out": canonical(transformed(estimator, data.held_out, train)),
        }
        held_out_seconds = perf_counter() - begun
    for matrix in parts.values():
        _check_matrix(matrix, how.algorithm)
    summary = MatrixSummary.of(parts["train"])
    return Made(
        {"estimator": estimator, **parts},
        summary.to_json(),
        perf_counter() - started,
        held_out_seconds=held_out_seconds,
    )


def fit_model(how: Recipe, seed: int, data: FoldData) -> tuple[Made, Predictions]:
    """Fit a model on the training rows; return part `estimator` and the held-out predictions.

    Raises:
        WillNotFit: If the step would need too much memory.
        InvalidPredictions: If the estimator does not predict one label for each row.
        Exception: Any error of the estimator.
    """
    started = _started(how)
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
    """Return transformed rows; for no rows, which estimators reject, an empty part of `train`."""
    return estimator.transform(X) if n_rows(X) else train[:0]


def _started(how: Recipe) -> float:
    """Return the time at which a step's cost starts, after its estimator was imported."""
    imported(how.estimator)
    return perf_counter()


def check_fits(how: Recipe, data: FoldData) -> None:
    """Raise WillNotFit if a step on all training rows cannot fit in memory."""
    summary = MatrixSummary.of(data.train)
    if data.n_rows_in_all is not None:
        summary = replace(summary, rows=max(summary.rows, data.n_rows_in_all))
    check_memory(
        how.estimator.rsplit(".", 1)[-1],
        how.memory,
        how.arguments,
        summary,
        repairs=how.repairs,
        limit_bytes=data.memory_limit_bytes,
    )


def _fit_to_transform(how: Recipe, seed: int, data: FoldData) -> tuple[Any, Any]:
    if how.out_of_fold:
        check_fits(how, data)
        estimator = build(how, seed)
        return estimator, estimator.fit_transform(data.train, data.y)
    estimator = _fit(how, seed, data)
    return estimator, estimator.transform(data.train)


def _fit(how: Recipe, seed: int, data: FoldData) -> Any:
    check_fits(how, data)
    if how.weights == "class_weight":  # as numbers, because `partial_fit` rejects "balanced"
        how = replace(how, arguments={**how.arguments, "class_weight": class_weights(data.y)})
    estimator = build(how, seed)
    weights = {how.weight_argument: sample_weights(data.y)} if how.weight_argument else {}
    model = how.model_in(estimator)
    bins = quick_weighted_bins(model) if weights else nullcontext()
    with data.threads_for(model, how), bins:
        return estimator.fit(data.train, data.y, **weights)


def sample_weights(y: NDArray[Any]) -> NDArray[np.float64]:
    """Return each row's weight, the inverse frequency of its class, shape (n,)."""
    return compute_sample_weight("balanced", y)


def class_weights(y: NDArray[Any]) -> dict[Any, float]:
    """Return each class's weight, its inverse frequency."""
    classes = np.unique(y)
    weights = compute_class_weight("balanced", classes=classes, y=y)
    return dict(zip(classes, weights.tolist(), strict=True))


def _check_matrix(matrix: Any, algorithm: str) -> None:
    if matrix.shape[1] == 0:
        raise ValueError(f"{algorithm} leaves no column")
    values = matrix.data if sparse.issparse(matrix) else matrix
    if (
        isinstance(values, np.ndarray)
        and values.dtype.kind == "f"
        and not np.isfinite(values).all()
    ):
        raise ValueError(f"{algorithm} makes values that are not finite")
