"""Figures of the final model: AUROC with its interval, calibration, and effects of columns.

The interval of the AUROC comes from bootstraps over independent units, such as all rows of a
patient. The strength of a code of patient events is the rise of the loss when the values of its
columns are permuted together among rows. The coverage of a code counts its patients and events. The
direction of a column is its correlation with the ranks of the scores.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import binomtest, rankdata
from sklearn.pipeline import Pipeline

from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.objective.predictions import Array, Predictions, predictions_of
from prefect_tune.tasks.objective.risk import MOST_WEIGHTS, weighted_areas

LEVEL = 0.95
"""Confidence of all intervals."""
_DRAWS = 1_000
_FEWEST_UNITS = 2
"""Least number of units with rows of each class."""
_MOST_BINS, _FEWEST_BINS = 10, 2
_ROWS_PER_BIN = 20
_PATIENTS_AT_ONCE = 10_000
_MOST_CODES, _MOST_COLUMNS = 40, 8
"""Limits on the codes permuted, and on the columns of each code."""
_REPEATS = 3
"""Permutations averaged for a strength."""

LossOf = Callable[[Predictions], float]
"""Returns the loss of predictions of the sample."""
ScoreOf = Callable[[Predictions], Array]
"""Returns numbers that grow with the prediction, by row."""


@dataclass(frozen=True, slots=True)
class Auroc:
    """Area under the ROC curve of all rows, with a 95 % percentile interval.

    `low` and `high` are None if a class has rows of one unit only; `n_draws` is then 0.
    """

    value: float
    low: float | None
    high: float | None
    n_draws: int
    n_units: int


def auroc_with_interval(
    is_positive: NDArray[np.bool_], score: Array, groups: NDArray[np.int64] | None, seed: int
) -> Auroc | None:
    """Return the AUROC of scores with its interval; None if a class has no rows.

    Bootstraps draw units (`groups`, shape (m,), or rows); those that lack a class are skipped.
    """
    m = len(score)
    if not 0 < np.count_nonzero(is_positive) < m:
        return None
    value = float(weighted_areas(score, is_positive, np.ones((1, m)))[0])
    unit = np.arange(m) if groups is None else np.unique(groups, return_inverse=True)[1]
    n_units = int(unit.max()) + 1
    if min(len(np.unique(unit[side])) for side in (is_positive, ~is_positive)) < _FEWEST_UNITS:
        return Auroc(value, None, None, 0, n_units)
    rng, size, areas = np.random.default_rng(seed), max(1, MOST_WEIGHTS // m), []
    for first in range(0, _DRAWS, size):
        drawn = (
            np.bincount(rng.integers(n_units, size=n_units), minlength=n_units)[unit]
            for _ in range(first, min(first + size, _DRAWS))
        )
        areas.append(weighted_areas(score, is_positive, np.array([*drawn], dtype=np.float64)))
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.nanquantile(np.concatenate(areas), ends).tolist()
    return Auroc(value, low, high, _DRAWS, n_units)


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Rows with similar predictions; `low` to `high` is Wilson's 95 % interval of `observed`."""

    n: int
    predicted: float
    observed: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Predicted probabilities against observed shares.

    Attributes:
        bins: Bins of equal size, by predicted probability; equal probabilities share a bin.
        expected_error: Mean distance of predicted and observed, weighted by rows (ECE).
        brier: Mean squared error of the probabilities.
        brier_of_share: Mean squared error if every probability were the share of positive rows.
    """

    bins: tuple[CalibrationBin, ...]
    expected_error: float
    brier: float
    brier_of_share: float


def calibration(is_positive: NDArray[np.bool_], probability: Array) -> Calibration:
    """Return how well probabilities of the positive class, shape (m,), m > 0, are calibrated.

    Bins have equal size, as in `sklearn.calibration.calibration_curve` with quantiles, which does
    not return their rows.
    """
    n_bins = int(np.clip(len(probability) // _ROWS_PER_BIN, _FEWEST_BINS, _MOST_BINS))
    edges = np.quantile(probability, np.linspace(0, 1, n_bins + 1))
    place, bins = np.searchsorted(edges[1:-1], probability), []
    for i in np.unique(place):
        inside = place == i
        n, positive = int(inside.sum()), int(is_positive[inside].sum())
        ends = binomtest(positive, n).proportion_ci(LEVEL, method="wilson")
        mean = float(probability[inside].mean())
        bins.append(CalibrationBin(n, mean, positive / n, float(ends.low), float(ends.high)))
    share = float(is_positive.mean())
    return Calibration(
        tuple(bins),
        sum(b.n * abs(b.predicted - b.observed) for b in bins) / len(probability),
        float(np.mean((probability - is_positive) ** 2)),
        share * (1 - share),
    )


@dataclass(frozen=True, slots=True)
class ColumnEffect:
    """A column of the matrix that a model receives, and its correlation with the scores.

    `direction` is from -1 to 1; None for a constant column.
    """

    column: str
    direction: float | None


@dataclass(frozen=True, slots=True)
class CodeEffect:
    """The columns of one code (or prefix with a star), or one column that belongs to no code.

    Attributes:
        strength: Rise of the loss when all columns of the code are permuted together.
        columns: Columns that correlate most with the scores, out of `n_columns`.
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
    """Return the effects of the codes that matter most to a pipeline made of events.

    Candidates are the codes whose columns correlate most with the scores. `loss_of` and `score_of`
    judge predictions of the sample X. After `seconds` of CPU time no more codes are permuted, but
    the first code always is.
    """
    deadline, rng = process_time() + seconds, np.random.default_rng(seed)
    matrix, names, rest = _matrix_of(pipeline, X)
    predicted = predictions_of(rest, matrix, classes)
    loss, scores = loss_of(predicted), score_of(predicted)
    direction = _correlations(matrix, scores)
    of_classes = scores[:, None] if predicted.score is None else predicted.score
    worth = np.max([np.abs(_correlations(matrix, column)) for column in of_classes.T], axis=0)
    orders, vocabulary = [rng.permutation(len(X)) for _ in range(_REPEATS)], set(X.codes)
    members: dict[str, list[int]] = {}
    for i in np.argsort(-worth, kind="stable").tolist():
        members.setdefault(code_of_column(names[i], vocabulary), []).append(i)
    effects: list[CodeEffect] = []
    for code, columns in list(members.items())[:_MOST_CODES]:
        if effects and process_time() > deadline:
            break
        permuted = (_permuted(matrix, columns, order) for order in orders)
        losses = [loss_of(predictions_of(rest, M, classes)) for M in permuted]
        shown = tuple(ColumnEffect(names[i], direction[i] or None) for i in columns[:_MOST_COLUMNS])
        effects.append(CodeEffect(code, float(np.mean(losses)) - loss, shown, len(columns)))
    effects.sort(key=lambda effect: -effect.strength)
    return ColumnEffects(tuple(effects), len(members), len(X))


def _matrix_of(pipeline: Pipeline, X: EventRows) -> tuple[Any, list[str], Pipeline]:
    made: Any = X
    for position, (_, step) in enumerate(pipeline.steps[:-1], 1):
        made = step.transform(made)
        if not isinstance(made, EventRows):
            matrix = made.tocsr() if sparse.issparse(made) else np.asarray(made)
            names = list(map(str, step.get_feature_names_out()))
            return matrix, names, Pipeline(pipeline.steps[position:])
    raise ValueError("no step of this pipeline turns events into columns")


def _permuted(matrix: Any, columns: Sequence[int], order: NDArray[np.intp]) -> Any:
    is_moved = np.isin(np.arange(matrix.shape[1]), columns)
    if not sparse.issparse(matrix):
        return np.where(is_moved, matrix[order], matrix)
    stays, moves = (sparse.diags_array(part.astype(matrix.dtype)) for part in (~is_moved, is_moved))
    return matrix @ stays + (matrix @ moves)[order]


def _correlations(matrix: Any, scores: Array) -> Array:
    """Return the correlations of the logarithms of columns with ranks, shape (p,); 0 if none."""
    logs = abs(matrix)
    if sparse.issparse(matrix):
        logs = logs.log1p()
        logs.data *= np.sign(matrix.data)
        squares = logs.multiply(logs)
    else:
        logs = np.log1p(logs) * np.sign(matrix)
        squares = logs * logs
    ranks = rankdata(scores)
    centred = (ranks - ranks.mean()) / (ranks.std() or 1.0)
    mean, square = (np.asarray(part.mean(axis=0), np.float64).ravel() for part in (logs, squares))
    spread = np.sqrt(np.maximum(square - mean * mean, 0.0))
    made: Array = np.asarray(logs.T @ centred, dtype=np.float64) / len(ranks)
    return np.divide(made, spread, out=np.zeros(len(made)), where=spread > 0)


@dataclass(frozen=True, slots=True)
class CodeCoverage:
    """Events of one code.

    Attributes:
        code: The code.
        description: Its description; empty if unknown.
        patients: Share of the patients that have the code, 0 to 1.
        events: Mean number of its events among these patients.
        by_class: Share of patients with the code, by class; empty unless there are two classes.
    """

    code: str
    description: str
    patients: float
    events: float
    by_class: tuple[float, ...]


def code_coverage(
    X: EventRows, rows: NDArray[np.intp], label: NDArray[np.int32] | None = None
) -> list[CodeCoverage]:
    """Return the coverage of all codes in `rows` of `X`, the most frequent first.

    A patient with several rows counts once, with the latest row and its class. `label` has the
    class, 0 or 1, of each row of `X`; it is None for other targets.
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
    return [
        CodeCoverage(
            vocabulary[i],
            descriptions.get(vocabulary[i], ""),
            float(total[i] / len(patients)),
            float(n_events[i] / total[i]),
            () if label is None else tuple(shares[:, i].tolist()),
        )
        for i in order.tolist()
    ]
