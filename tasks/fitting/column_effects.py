"""Strength and direction of the columns that a fitted pipeline makes of events.

Strength is the rise of the loss when values are permuted among rows. The columns of a code are
first permuted together, because they could replace each other. Direction is the rank correlation
with the scores.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import rankdata
from sklearn.pipeline import Pipeline

from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.objective.predictions import Predictions, predictions_of

_MOST_CODES, _MOST_COLUMNS = 40, 8
"""Limits on the codes permuted, and on the columns of each code."""
_REPEATS = 3
"""Permutations averaged for a strength."""
_SHARE_OF_CODES = 0.6
"""Share of the time budget for whole codes."""

Array = NDArray[np.float64]
LossOf = Callable[[Predictions], float]
"""Returns the loss of predictions of the sample."""
ScoreOf = Callable[[Predictions], Array]
"""Returns numbers that grow with the prediction, by row."""


@dataclass(frozen=True, slots=True)
class ColumnEffect:
    """A column of the matrix that a model receives.

    Attributes:
        strength: Rise of the loss when the column is permuted; None if not measured.
        direction: Rank correlation with the scores, -1 to 1; None for a constant column.
    """

    column: str
    strength: float | None
    direction: float | None


@dataclass(frozen=True, slots=True)
class CodeEffect:
    """The columns of one code (or prefix with a star), or one column that belongs to no code.

    Attributes:
        strength: Rise of the loss when all columns of the code are permuted together.
        columns: The strongest of its `n_columns` columns, by strength.
    """

    code: str
    strength: float
    columns: tuple[ColumnEffect, ...]
    n_columns: int


@dataclass(frozen=True, slots=True)
class ColumnEffects:
    """Effects of permuted codes, strongest first, out of `n_codes`, on a sample of `n_rows`."""

    codes: tuple[CodeEffect, ...]
    n_codes: int
    n_rows: int


def code_of_column(column: str, codes: Container[str]) -> str:
    """Return the code of a column; the column itself if it belongs to no code.

    >>> code_of_column("RR//rate: mean, 30 days", {"RR//rate"}), code_of_column("a: b", {"a: b"})
    ('RR//rate', 'a: b')
    """
    if column in codes:
        return column
    return column.rpartition(": ")[0] or column


def column_effects(  # noqa: PLR0917
    pipeline: Pipeline,
    X: EventRows,
    classes: NDArray[Any],
    loss_of: LossOf,
    score_of: ScoreOf,
    seed: int,
    seconds: float = 5.0,
) -> ColumnEffects:
    """Return the effects of the columns that matter most to a pipeline made of events.

    Candidates are the codes whose columns have the largest importance in the model or correlate
    most with its scores. `loss_of` and `score_of` judge predictions of the sample X. After
    `seconds` of CPU time no more columns are permuted, but the first code always is.
    """
    deadline = process_time() + seconds
    rng = np.random.default_rng(seed)
    matrix, names, rest = _matrix_of(pipeline, X)
    predicted = predictions_of(rest, matrix, classes)
    ranks = rankdata(score_of(predicted))
    orders = [rng.permutation(len(X)) for _ in range(_REPEATS)]
    measured = _Measured(matrix, rest, classes, loss_of, loss_of(predicted), ranks, orders)
    vocabulary = set(X.codes)
    members: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        members.setdefault(code_of_column(name, vocabulary), []).append(i)
    worth = measured.worth()
    found: dict[str, float] = {}
    code_deadline = deadline - (1 - _SHARE_OF_CODES) * seconds
    for code in _candidates(members, worth):
        if found and process_time() > code_deadline:
            break
        found[code] = measured.strength(members[code])
    effects = []
    for code in sorted(found, key=lambda code: -found[code]):
        columns = []
        for i in sorted(members[code], key=lambda i: -max(of[i] for of in worth))[:_MOST_COLUMNS]:
            alone: float | None = None
            if len(members[code]) == 1:
                alone = found[code]
            elif process_time() < deadline:
                alone = measured.strength([i])
            columns.append(ColumnEffect(names[i], alone, measured.direction(i)))
        columns.sort(key=lambda c: -(c.strength if c.strength is not None else -np.inf))
        effects.append(CodeEffect(code, found[code], tuple(columns), len(members[code])))
    return ColumnEffects(tuple(effects), len(members), len(X))


@dataclass(frozen=True)
class _Measured:
    """A sample as the matrix (n, p) a pipeline makes of it, with the pipeline's predictions.

    `rest` are the steps that take the matrix, `ranks` the ranks of the scores, and `orders` the
    permutations of the rows.
    """

    matrix: Any
    rest: Pipeline
    classes: NDArray[Any]
    loss_of: LossOf
    loss: float
    ranks: Array
    orders: Sequence[NDArray[np.intp]]

    def strength(self, columns: Sequence[int]) -> float:
        chosen = np.array(columns)
        permuted = (_permuted(self.matrix, chosen, order) for order in self.orders)
        losses = [self.loss_of(predictions_of(self.rest, M, self.classes)) for M in permuted]
        return float(np.mean(losses)) - self.loss

    def direction(self, column: int) -> float | None:
        """Return the rank correlation of a column with the scores; None if either is constant."""
        values = self.matrix[:, [column]]
        dense = values.toarray() if sparse.issparse(values) else values
        of_column = rankdata(dense.ravel())
        if of_column.std() == 0 or self.ranks.std() == 0:
            return None
        return float(np.corrcoef(of_column, self.ranks)[0, 1])

    def worth(self) -> list[Array]:
        """Return measures of how much columns may matter, each of shape (p,) and at most 1."""
        found = [np.abs(_correlations(self.matrix, self.ranks))]
        model = self.rest.steps[-1][1]
        while (inner := _inner(model)) is not None:
            model = inner
        for name in ("feature_importances_", "coef_"):
            importance = getattr(model, name, None)
            if importance is None:
                continue
            dense = importance.toarray() if sparse.issparse(importance) else importance
            size = np.abs(np.atleast_2d(np.asarray(dense, dtype=np.float64))).mean(axis=0)
            if size.shape == (self.matrix.shape[1],) and np.isfinite(size).all() and size.any():
                if name == "coef_":  # the coefficient of a nearly constant column has little effect
                    size *= _deviations(self.matrix)
                found.append(size / (size.max() or 1.0))
                break
        return found


def _matrix_of(pipeline: Pipeline, X: EventRows) -> tuple[Any, list[str], Pipeline]:
    made: Any = X
    for position, (_, step) in enumerate(pipeline.steps[:-1], 1):
        made = step.transform(made)
        if not isinstance(made, EventRows):
            matrix = made.tocsr() if sparse.issparse(made) else np.asarray(made)
            names = list(map(str, step.get_feature_names_out()))
            return matrix, names, Pipeline(pipeline.steps[position:])
    raise ValueError("no step of this pipeline turns events into columns")


def _permuted(matrix: Any, columns: NDArray[np.intp], order: NDArray[np.intp]) -> Any:
    if not sparse.issparse(matrix):
        permuted = matrix.copy()
        permuted[:, columns] = matrix[np.ix_(order, columns)]
        return permuted
    is_moved = np.zeros(matrix.shape[1], dtype=bool)
    is_moved[columns] = True
    moved = is_moved[matrix.indices]
    return _entries(matrix, ~moved) + _entries(matrix, moved)[order]


def _entries(matrix: Any, kept: NDArray[np.bool_]) -> Any:
    offsets = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr].astype(matrix.indptr.dtype)
    parts = (matrix.data[kept], matrix.indices[kept], offsets)
    return type(matrix)(parts, shape=matrix.shape)


def _inner(model: Any) -> Any:
    return model.steps[-1][1] if isinstance(model, Pipeline) else getattr(model, "estimator_", None)


def _correlations(matrix: Any, ranks: Array) -> Array:
    """Return the correlations of the logarithms of columns with ranks, shape (p,)."""
    logs = abs(matrix)
    if sparse.issparse(matrix):
        logs = logs.log1p()
        logs.data *= np.sign(matrix.data)
    else:
        logs = np.log1p(logs) * np.sign(matrix)
    centred = (ranks - ranks.mean()) / (ranks.std() or 1.0)
    made: Array = np.asarray(logs.T @ centred, dtype=np.float64) / len(ranks)
    spread = _deviations(logs)
    return np.divide(made, spread, out=np.zeros(len(made)), where=spread > 0)


def _deviations(matrix: Any) -> Array:
    mean = np.asarray(matrix.mean(axis=0), dtype=np.float64).ravel()
    squares = matrix.multiply(matrix) if sparse.issparse(matrix) else matrix * matrix
    square = np.asarray(squares.mean(axis=0), dtype=np.float64).ravel()
    return np.sqrt(np.maximum(square - mean * mean, 0.0))


def _candidates(members: dict[str, list[int]], worth: Sequence[Array]) -> list[str]:
    """Return the codes to permute: the best code of each measure in turn."""
    orders = []
    for measure in reversed(worth):  # the model's importances first
        sums = {code: float(measure[columns].sum()) for code, columns in members.items()}
        orders.append(sorted(sums, key=sums.__getitem__, reverse=True))
    turns = [code for same_place in zip(*orders, strict=True) for code in same_place]
    return list(dict.fromkeys(turns))[:_MOST_CODES]
