"""Effects of columns on a final model, and descriptions of the model's data.

The strength of a table column, or of a code of patient events, is the increase in loss when its
values are permuted among rows, with all features of the column permuted together. The direction of
a feature is its correlation with the ranks of the scores. The coverage of a code counts patients
and events. Values found in few rows may identify people, so descriptions do not show them.
"""

from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import floor, log10
from time import process_time
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import rankdata
from sklearn.pipeline import Pipeline

from prefect_tune.tasks.bad_input import shown_columns
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.row_reader import LearnedColumn
from prefect_tune.tasks.objective.metric import number_text
from prefect_tune.tasks.objective.predictions import (
    Array,
    Predictions,
    predicted_scores,
    predictions_of,
)

FEWEST_ROWS = 10
"""Minimum number of rows (patients, for codes) with a value for the value to be named."""
_PATIENTS_AT_ONCE = 10_000
_MOST_CODES, _MOST_COLUMNS = 40, 8
"""Maximum number of codes to permute, and maximum number of columns to show per code."""
_REPEATS = 3
"""Number of permutations averaged for a strength."""
_MOST_POINTS, _MOST_CATEGORIES = 10, 8
"""Maximum numbers of numeric values and of categories in a dependence."""

LossOf = Callable[[Predictions], float]
"""Function that returns the loss of predictions for the sample."""
ScoresOf = Callable[[Predictions], Array]
"""Function that returns scores that grow with the prediction, one column for each of k labels,
shape (n, k)."""


def code_of_column(column: str, codes: Container[str]) -> str:
    """Return the code of a column from its name, or the name itself if there is no code.

    >>> code_of_column("RR//rate: mean, 30 days", {"RR//rate"}), code_of_column("a: b", {"a: b"})
    ('RR//rate', 'a: b')
    """
    if column in codes:
        return column
    return column.rpartition(": ")[0] or column


@dataclass(frozen=True, slots=True)
class ModelInput:
    """Rows in the form received by a fitted model or the rest of a pipeline.

    Attributes:
        model: Model that receives the rows.
        matrix: Rows as a frame, array or sparse matrix, shape (n, p).
        names: Name of each column of the matrix.
        codes: Code of patient events, or column of the user's table, behind each column of the
            matrix.
    """

    model: Any
    matrix: Any
    names: Sequence[str]
    codes: Sequence[str]

    @classmethod
    def of_events(cls, pipeline: Pipeline, X: EventRows) -> Self:
        """Return the columns that a pipeline builds from events, as input for later steps."""
        made: Any = X
        for position, (_, step) in enumerate(pipeline.steps[:-1], 1):
            made = step.transform(made)
            if not isinstance(made, EventRows):
                matrix = made.tocsr() if sparse.issparse(made) else np.asarray(made)
                names, known = list(map(str, step.get_feature_names_out())), set(X.codes)
                rest = Pipeline(pipeline.steps[position:])
                return cls(rest, matrix, names, [code_of_column(name, known) for name in names])
        raise ValueError("no step of this pipeline turns events into columns")

    @classmethod
    def of_table(cls, model: Any, X: pd.DataFrame, columns: Sequence[LearnedColumn]) -> Self:
        """Return the features of a table, mapped to columns of the user's rows."""
        codes = {feature: one.name for one in columns for feature in one.features}
        names = [str(name) for name in X]
        return cls(model, X, names, [codes[name] for name in names])

    def members(self, code: str) -> NDArray[np.intp]:
        """Return the positions of a code's columns."""
        return np.flatnonzero(np.array(self.codes, dtype=object) == code)

    def with_rows(self, columns: Sequence[int] | NDArray[np.intp], rows: NDArray[np.intp]) -> Any:
        """Return k stacked copies of the matrix with some columns taken from other rows."""
        matrix, own = self.matrix, np.resize(np.arange(self.matrix.shape[0]), len(rows))
        if isinstance(matrix, pd.DataFrame):
            changed = matrix.iloc[own].reset_index(drop=True)
            for i in columns:
                changed.isetitem(i, matrix.iloc[rows, i].array)
            return changed
        is_moved = np.isin(np.arange(matrix.shape[1]), columns)
        if not sparse.issparse(matrix):
            return np.where(is_moved, matrix[rows], matrix[own])
        parts = (part.astype(matrix.dtype) for part in (~is_moved, is_moved))
        stays, moves = map(sparse.diags_array, parts)
        return (matrix @ stays)[own] + (matrix @ moves)[rows]


def column_effects(  # noqa: PLR0917
    given: ModelInput,
    classes: NDArray[Any],
    scores_of: ScoresOf,
    loss_of: LossOf,
    seed: int,
    seconds: float = 5.0,
) -> tuple[pd.DataFrame, int]:
    """Return the codes or table columns most important to a model, and the number examined.

    The candidates are the codes whose columns correlate most with the scores. `loss_of` and
    `scores_of` evaluate predictions for the given rows. After `seconds` of CPU time, no more codes
    are permuted, but the first code always is. Each row of the result describes a column of a code,
    strongest code first: the increase in loss (`strength`) when all columns of the code are
    permuted together, its standard deviation over permutations (`spread`), and the `direction` of
    the column from -1 to 1 (nan for a category, a constant, or multiple scores).
    """
    deadline, rng = process_time() + seconds, np.random.default_rng(seed)
    predicted, n = _predicted(given.model, given.matrix, classes), given.matrix.shape[0]
    loss, scores = loss_of(predicted), scores_of(predicted)
    correlations = np.array([_correlations(given.matrix, column) for column in scores.T])
    if scores.shape[1] == 1:
        direction = np.where(_are_categories(given.matrix), np.nan, correlations[0])
    else:
        direction = np.full(len(given.names), np.nan)
    orders = np.concatenate([rng.permutation(n) for _ in range(_REPEATS)])
    repeats = np.split(np.arange(len(orders)), _REPEATS)
    members: dict[str, list[int]] = {}
    for i in np.argsort(-np.abs(correlations).max(axis=0), kind="stable").tolist():
        members.setdefault(given.codes[i], []).append(i)
    effects: list[pd.DataFrame] = []
    for code, columns in list(members.items())[:_MOST_CODES]:
        if effects and process_time() > deadline:
            break
        permuted = _predicted(given.model, given.with_rows(columns, orders), classes)
        rises = [loss_of(permuted.take(rows)) - loss for rows in repeats]
        sums = {"strength": np.mean(rises), "spread": np.std(rises)}
        shown = columns[:_MOST_COLUMNS]
        names = {"code": code, "column": [given.names[i] for i in shown]}
        effects.append(pd.DataFrame({**names, "direction": direction[shown], **sums}))
    found = pd.concat(effects).sort_values("strength", ascending=False, kind="stable")
    return found, len(members)


def _predicted(model: Any, X: Any, classes: NDArray[Any]) -> Predictions:
    """Return predictions, deriving labels from probabilities to predict rows only once."""
    if len(classes):
        with suppress(AttributeError, NotImplementedError):  # without probabilities
            score = predicted_scores(model, X, classes, "predict_proba")
            return Predictions(score.argmax(axis=1), score)
    return predictions_of(model, X, classes)


def _are_categories(matrix: Any) -> NDArray[np.bool_]:
    kinds = matrix.dtypes if isinstance(matrix, pd.DataFrame) else [None] * matrix.shape[1]
    return np.array([isinstance(kind, pd.CategoricalDtype) for kind in kinds])


def _correlations(matrix: Any, scores: Array) -> Array:
    """Return the correlations of log columns with score ranks, shape (p,); 0 if undefined."""
    ranks = rankdata(scores)
    if isinstance(matrix, pd.DataFrame):
        matrix = np.column_stack([_as_numbers(column, ranks) for _, column in matrix.items()])
    logs = abs(matrix)
    if sparse.issparse(matrix):
        logs = logs.log1p()
        logs.data *= np.sign(matrix.data)
        squares = logs.multiply(logs)
    else:
        logs = np.log1p(logs) * np.sign(matrix)
        squares = logs * logs
    centered = (ranks - ranks.mean()) / (ranks.std() or 1.0)
    mean, square = (np.asarray(part.mean(axis=0), np.float64).ravel() for part in (logs, squares))
    spread = np.sqrt(np.maximum(square - mean * mean, 0.0))
    made: Array = np.asarray(logs.T @ centered, dtype=np.float64) / len(ranks)
    return np.divide(made, spread, out=np.zeros(len(made)), where=spread > 0)


def _as_numbers(column: pd.Series, ranks: Array) -> Array:
    """Return a feature without missing values; a category becomes the mean rank of its rows."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy()
        return pd.Series(ranks).groupby(codes).transform("mean").to_numpy()
    return column.fillna(column.median()).fillna(0.0).to_numpy(dtype=np.float64)


def dependence(
    given: ModelInput,
    column: LearnedColumn,
    classes: NDArray[Any],
    scores_of: ScoresOf,
    labels: Sequence[str] | NDArray[Any],
) -> pd.DataFrame:
    """Return the mean scores by label for each value of a column, as if all rows had that value.

    Numeric values range from the 5th to the 95th percentile, and categories are the most frequent
    ones. All features of the column take the values of the same row (Friedman 2001).
    """
    feature, n = given.matrix[column.features[0]], len(given.matrix)
    if column.kind == "category":
        counts = feature.value_counts()
        values = counts[counts >= FEWEST_ROWS].index[:_MOST_CATEGORIES].tolist()
    else:
        shares = np.linspace(0.05, 0.95, _MOST_POINTS)
        values = feature.dropna().quantile(shares, interpolation="nearest").unique().tolist()
    rows = np.array([np.argmax(feature == value) for value in values], dtype=np.intp)
    changed = given.with_rows(given.members(column.name), np.repeat(rows, n))
    scores = scores_of(_predicted(given.model, changed, classes))
    means = scores.reshape(len(rows), n, len(labels)).mean(axis=1)
    named = values if column.kind in ("category", "date") else _rounded(np.array(values))
    return pd.DataFrame(
        {
            "column": column.name,
            "kind": column.kind,
            "value": np.repeat(named, len(labels)),
            "label": np.tile(labels, len(rows)),
            "score": means.ravel(),
        }
    )


def named_classes(y: NDArray[Any], n_classes: int, fewest: int) -> NDArray[np.intp]:
    """Return the classes that may be named, the most frequent first; both if there are two.

    With more than two classes, a class of less than `fewest` rows may identify people.
    """
    n_rows = np.bincount(y, minlength=n_classes) if n_classes else np.zeros(0, dtype=np.intp)
    order = np.argsort(-n_rows, kind="stable")
    return order if n_classes == 2 else order[n_rows[order] >= fewest]


def described_columns(
    X: pd.DataFrame, columns: Sequence[LearnedColumn], fewest: int
) -> pd.DataFrame:
    """Return the name, kind, fraction of missing values, and values of each column as text.

    Categories with fewer than `fewest` rows are only counted. The same number of values is trimmed
    from each end of a numeric range, and the ends are rounded.
    """
    rows = []
    for column in columns:
        values = X[column.features[0]]
        known, parts = values.dropna(), list[str]()
        if column.kind == "category":
            counts = known.value_counts()
            named = counts.index[counts >= fewest]
            n_rare = int((counts > 0).sum()) - len(named)
            parts = [shown_columns(named)] * bool(len(named)) + [f"{n_rare:,} rare"] * bool(n_rare)
        elif column.kind != "text" and len(known) >= 2 * fewest:
            ends = np.sort(known.to_numpy())[[fewest - 1, -fewest]]
            texts = [*map(number_text, ends if fewest == 1 else _rounded(ends))]
            if column.kind == "date":
                texts = [*pd.to_datetime(ends, unit="D").strftime("%Y-%m-%d")]
            parts = [" to ".join(texts)]
        rows.append((column.name, column.kind, float(values.isna().mean()), ", ".join(parts)))
    return pd.DataFrame(rows, columns=["column", "kind", "missing", "values"])


def _rounded(values: Array) -> Array:
    """Return numbers rounded to between a hundredth and a thousandth of their range."""
    return np.round(values, 2 - floor(log10(np.ptp(values) or abs(values[0]) or 1.0)))


def code_coverage(
    X: EventRows, rows: NDArray[np.intp], label: NDArray[np.int32] | None = None
) -> pd.DataFrame:
    """Return the coverage of all codes in `rows` of `X`, most frequent first.

    Columns are the code, its description, the number and fraction of patients with the code, the
    mean number of the code's events among these patients, and the fraction of patients with the
    code in each of two classes. A patient with several rows counts once, with the latest row and
    its class. `label` contains the class, 0 or 1, of each row of `X`, or is None for other targets.
    """
    patients, width = X.longest_rows(rows), len(X.codes)
    n_sides = 1 if label is None else 2
    side = np.zeros(len(patients), dtype=np.int32) if label is None else label[patients]
    n_events, n_with = np.zeros(width), np.zeros((n_sides, width))
    for first in range(0, len(patients), _PATIENTS_AT_ONCE):
        chunk = slice(first, first + _PATIENTS_AT_ONCE)
        code, offsets = X.take(patients[chunk]).codes_of_events()
        shape = len(offsets) - 1, width
        counts = sparse.csr_array((np.ones(len(code)), code, offsets), shape=shape)
        counts.sum_duplicates()
        n_events += counts.sum(axis=0)
        for i in range(n_sides):
            n_with[i] += np.bincount(counts[side[chunk] == i].indices, minlength=width)
    n_patients, total = np.bincount(side, minlength=n_sides), n_with.sum(axis=0)
    shares = n_with / np.maximum(n_patients, 1)[:, None]
    descriptions, vocabulary = X.descriptions(), X.codes
    order = np.lexsort((-n_events, -total))[: np.count_nonzero(total)]
    table = {
        "code": vocabulary,
        "description": [descriptions.get(code, "") for code in vocabulary],
        "n_patients": total.astype(int),
        "patients": total / len(patients),
        "events": n_events / np.maximum(total, 1),
    }
    by_class = {f"patients_of_{i}": shares[i] for i in range(n_sides) if label is not None}
    return pd.DataFrame({**table, **by_class}).iloc[order]
