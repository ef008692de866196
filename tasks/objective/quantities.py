"""Quantities of a fitted pipeline, measured on the held-out rows of one fold.

Examples are latency per row, and differences between groups of rows, formed by the values of a
column or by intervals. A trial's value is the mean over its folds (Ram et al. 2020, equation A44).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from time import perf_counter
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, r2_score
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if

from prefect_tune.tasks.data.row_reader import RowReader
from prefect_tune.tasks.data.split import Split
from prefect_tune.tasks.objective.declaration import Quantity
from prefect_tune.tasks.objective.metric import Metric, metric_named
from prefect_tune.tasks.objective.predictions import Predictions, predicted_labels, predicted_scores
from prefect_tune.tasks.threads import one_thread
from prefect_tune.tasks.user_code import load_user_code, portable_pickle

_BATCH = 1_000
"""Rows of a batch, or all rows if there are fewer."""
_LEAST_REPEATS = 5
_MOST_REPEATS = 50
_SECONDS = 0.2
"""Time over which the measurement repeats; a slow pipeline takes longer."""


def latency_us(pipeline: Any, X: Any, n_rows: int = 1) -> float:
    """Return microseconds per row: the median over calls with `n_rows` rows, on one thread."""
    n = min(n_rows, len(X))
    rows = X.iloc[:n] if isinstance(X, pd.DataFrame) else X.take(np.arange(n))
    seconds: list[float] = []
    with one_thread():  # predictions need no check: those for the held-out rows were checked
        pipeline.predict(rows)
        while len(seconds) < _LEAST_REPEATS or (
            sum(seconds) < _SECONDS and len(seconds) < _MOST_REPEATS
        ):
            started = perf_counter()
            pipeline.predict(rows)
            seconds.append(perf_counter() - started)
    return 1e6 * float(np.median(seconds)) / n


def groups_of(
    column: "pd.Series[Any]", bins: Sequence[float]
) -> tuple[NDArray[np.intp], list[str]]:
    """Return the group of each row, shape (n,), and the groups' names; -1 for no group.

    Groups are the column's values, or intervals between ascending `bins` (the last one closed).
    """
    if not bins:
        numbers, found = pd.factorize(column, sort=True)
        return numbers, [str(value) for value in found]
    values, edges = column.astype(float).to_numpy(), np.array(bins)
    is_in = (values >= edges[0]) & (values <= edges[-1])
    numbers = np.where(is_in, np.minimum(np.digitize(values, edges) - 1, len(edges) - 2), -1)
    held, numbers[is_in] = np.unique(numbers[is_in], return_inverse=True)
    return numbers, [f"{bins[i]:g} to {bins[i + 1]:g}" for i in held]


def absent_groups(
    column: "pd.Series[Any]", bins: Sequence[float], split: Split
) -> tuple[dict[str, list[int]], int]:
    """Return, by group, the folds without held-out rows of it; and the fewest groups in a fold."""
    numbers, names = groups_of(column, bins)
    held = [set(numbers[split.held_out(fold)].tolist()) - {-1} for fold in range(split.n_folds)]
    absent = {
        name: [fold for fold, groups in enumerate(held) if i not in groups]
        for i, name in enumerate(names)
    }
    return {name: folds for name, folds in absent.items() if folds}, min(map(len, held))


Needs = Literal["predictions", "pipeline"]


@dataclass(frozen=True)
class HeldOutRows:
    """The held-out rows of a fold, with the predictions of a fitted pipeline.

    Attributes:
        X: Rows as they were read.
        columns: Columns to form groups from, including columns kept aside; None for events.
        y: Classes of the rows by position, or their numbers, shape (n,).
        learned_classes: Classes as the pipeline learned them, shape (c,).
        reader: Reader of rows in the study's schema; None for events.
        pipeline: Function that assembles the fitted steps.
    """

    X: Any
    columns: pd.DataFrame | None
    y: NDArray[Any]
    classes: tuple[Any, ...]
    learned_classes: NDArray[Any]
    reader: RowReader | None
    predictions: Predictions
    metric: Metric
    pipeline: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class QuantityKind:
    """A built-in quantity; `measure` returns its value in one fold, nan if undefined."""

    needs: Needs
    measure: Callable[[Quantity, HeldOutRows], float]
    arguments: tuple[str, ...]
    meaning: str


def needs(quantity: Quantity) -> Needs:
    """Return the input that measuring a quantity needs."""
    return "pipeline" if quantity.code else QUANTITIES[quantity.name].needs


def measure_quantity(quantity: Quantity, held_out: HeldOutRows) -> float:
    """Return the value of a quantity in one fold; nan if undefined.

    Raises InvalidPredictions, and ValueError if a user's function returns no finite number.
    """
    if not quantity.code:
        return QUANTITIES[quantity.name].measure(quantity, held_out)
    file, function = quantity.name.rsplit(":", 1)
    measure = getattr(load_user_code(quantity.code, file, quantity.behind), function)
    labels = np.array(held_out.classes)[held_out.y] if held_out.classes else held_out.y
    pipeline = _CheckedPipeline(held_out)
    returned = measure(pipeline, held_out.X, labels)
    value = returned if np.size(returned) != 1 else np.asarray(returned).item()
    is_number = isinstance(value, Number) and not isinstance(value, complex)
    if not is_number or not np.isfinite(found := float(value)):
        raise ValueError(f"{quantity.name} returned {value!r}; it must return a finite number")
    return found


class _CheckedPipeline(Pipeline):
    """A fitted pipeline for a user's function, with checked predictions of rows it may change."""

    def __init__(self, held_out: HeldOutRows) -> None:
        super().__init__(_reading_pipeline(held_out).steps)
        self.classes, self.learned_classes = held_out.classes, held_out.learned_classes

    @property
    def classes_(self) -> NDArray[Any]:
        return np.array(self.classes)

    def predict(self, X: Any) -> NDArray[Any]:
        found = predicted_labels(Pipeline(self.steps), X, self.learned_classes)
        return self.classes_[found] if self.classes else found

    @available_if(lambda self: hasattr(Pipeline(self.steps), "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        return predicted_scores(Pipeline(self.steps), X, self.learned_classes, "predict_proba")

    @available_if(lambda self: hasattr(Pipeline(self.steps), "decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return decision values, of the second class if there are two, else of each class."""
        scores = predicted_scores(
            Pipeline(self.steps), X, self.learned_classes, "decision_function"
        )
        return scores[:, 1] if len(self.classes) == 2 else scores

    @available_if(lambda self: hasattr(Pipeline(self.steps), "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        measure = accuracy_score if self.classes else r2_score
        return float(measure(y, self.predict(X), sample_weight=sample_weight))


def _reading_pipeline(held_out: HeldOutRows) -> Pipeline:
    reader = [] if held_out.reader is None else [("read rows", held_out.reader)]
    return Pipeline([*reader, *held_out.pipeline().steps])


def _latency(quantity: Quantity, held_out: HeldOutRows) -> float:  # noqa: ARG001 - shared signature
    return latency_us(_reading_pipeline(held_out), held_out.X)


def _batch_latency(quantity: Quantity, held_out: HeldOutRows) -> float:  # noqa: ARG001
    return latency_us(_reading_pipeline(held_out), held_out.X, _BATCH)


def _size(quantity: Quantity, held_out: HeldOutRows) -> float:  # noqa: ARG001 - shared signature
    return float(len(portable_pickle(held_out.pipeline())))


def _false_positive_rate(quantity: Quantity, held_out: HeldOutRows) -> float:  # noqa: ARG001
    is_negative = held_out.y != held_out.metric.positive
    found = held_out.predictions.label[is_negative] == held_out.metric.positive
    return float(found.mean()) if len(found) else 0.0


def _disparate_impact(quantity: Quantity, held_out: HeldOutRows) -> float:
    """Return the largest difference of a metric between two groups (equation A43).

    Groups for which the metric is undefined are skipped; nan if fewer than two groups are left.
    """
    metric = metric_named(quantity.metric, held_out.metric.positive) if quantity.metric else None
    metric = metric or held_out.metric
    assert held_out.columns is not None  # noqa: S101 - checked before the study starts
    numbers, _ = groups_of(held_out.columns[quantity.column], quantity.bins)
    losses = []
    for group in np.unique(numbers[numbers >= 0]):
        rows = np.flatnonzero(numbers == group)
        predicted = held_out.predictions.take(rows)
        try:
            losses.append(metric.loss(held_out.y[rows], predicted, len(held_out.classes)))
        except ValueError:
            continue
    return max(losses) - min(losses) if len(losses) > 1 else float("nan")


QUANTITIES: Mapping[str, QuantityKind] = {
    "latency_us": QuantityKind(
        "pipeline", _latency, (), "microseconds of a call that predicts one row"
    ),
    "batch_latency_us": QuantityKind(
        "pipeline", _batch_latency, (), "microseconds per row, predicting 1,000 at once"
    ),
    "model_size_bytes": QuantityKind("pipeline", _size, (), "bytes of the pickled pipeline"),
    "disparate_impact": QuantityKind(
        "predictions",
        _disparate_impact,
        ("column", "bins", "metric"),
        "largest difference of a metric between two groups of rows, in the metric's unit",
    ),
    "false_positive_rate": QuantityKind(
        "predictions", _false_positive_rate, (), "share of negatives predicted as positive"
    ),
}
"""Quantities that a study may bound, by name."""
