"""Columns derived from pairs of columns: arithmetic on numbers, interactions of categories.

Pairs are chosen on the training rows by their information about the target beyond the better column
of the pair. Missing values stay missing, because imputing comes later.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_selection import f_classif, f_regression
from sklearn.metrics import mutual_info_score
from sklearn.utils.validation import validate_data

_MOST_ROWS = 10_000
"""Maximum number of training rows for scoring pairs; the rows are evenly spaced."""
_MOST_NUMBERS = 16
"""Maximum number of numeric columns that form pairs; the most informative columns are used."""
_MOST_CATEGORIES = 12
_MOST_VALUES = 1_000
"""Maximum number of values of a category pair, which is also limited to a fifth of the rows."""
_BINS = 10
"""Number of bins of a numeric target, for mutual information."""

Array = NDArray[np.float64]
Scored = Iterator[tuple[float, tuple[str, str, str]]]
"""Gain of each pair over its better column, and the pair itself: first, sign, second."""


_OPERATIONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
}


def is_number(column: pd.Series) -> bool:
    """Return whether a column of a canonical frame contains numbers rather than categories."""
    return bool(pd.api.types.is_numeric_dtype(column))


class _Combinations(TransformerMixin, BaseEstimator):
    """Adds up to `n_combinations` columns, each derived from two others."""

    def __init__(self, n_combinations: int = 16, target: str = "classification") -> None:
        self.n_combinations = n_combinations
        self.target = target

    def fit(self, X: pd.DataFrame, y: Any) -> Self:
        rows = np.unique(np.linspace(0, len(X) - 1, min(len(X), _MOST_ROWS)).astype(np.intp))
        scored = list(self._scored(X.iloc[rows], np.asarray(y)[rows]))
        # The sort is stable, so ties keep their order.
        best = sorted(scored, key=lambda found: -found[0])[: self.n_combinations]
        self.chosen_ = [pair for gain, pair in best if gain > 0]
        validate_data(self, X, skip_check_array=True)
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        validate_data(self, X, reset=False, skip_check_array=True)
        made = {_new_name(pair, X): self._made(X, *pair) for pair in self.chosen_}
        return pd.concat([X, pd.DataFrame(made, index=X.index)], axis=1) if made else X

    def _scored(self, X: pd.DataFrame, y: NDArray[Any]) -> Scored:
        raise NotImplementedError

    def _made(self, X: pd.DataFrame, first: str, sign: str, second: str) -> Any:
        raise NotImplementedError


class ArithmeticCombinations(_Combinations):
    """Differences, products and ratios of two columns of numbers.

    A column's score is an F-test against classes or the correlation with a numeric target. Scores
    use the ranks of values, because trees depend only on the order of values.
    """

    def _scored(self, X: pd.DataFrame, y: NDArray[Any]) -> Scored:
        values = {str(n): X[n].to_numpy(dtype=np.float64) for n in X if is_number(X[n])}
        if len(values) < 2:
            return
        alone = dict(zip(values, self._scores(list(values.values()), y), strict=True))
        names = sorted(values, key=lambda n: -alone[n])[:_MOST_NUMBERS]
        pairs = [
            (first, sign, second)
            for first, second in combinations(names, 2)
            for sign in _OPERATIONS
        ]
        made = [_combined(values[first], sign, values[second]) for first, sign, second in pairs]
        for pair, score in zip(pairs, self._scores(made, y), strict=True):
            yield float(score - max(alone[pair[0]], alone[pair[2]])), pair

    def _scores(self, columns: Sequence[Array], y: NDArray[Any]) -> Array:
        ranks = np.column_stack([_ranks(column) for column in columns])
        varied = np.ptp(ranks, axis=0) > 0  # scikit-learn warns about constant columns
        scores = np.zeros(ranks.shape[1])
        if not varied.any():
            return scores
        with np.errstate(all="ignore"):
            if self.target == "regression":
                scores[varied] = f_regression(ranks[:, varied], rankdata(y))[0]
            else:
                scores[varied] = f_classif(ranks[:, varied], y)[0]
        return np.nan_to_num(scores, nan=0.0, posinf=np.finfo(np.float64).max)

    def _made(self, X: pd.DataFrame, first: str, sign: str, second: str) -> Array:
        a, b = (X[name].to_numpy(dtype=np.float64) for name in (first, second))
        return _combined(a, sign, b)


class CategoryInteractions(_Combinations):
    """Pairs of categories as new categories; a pair is missing if either category is.

    A pair's score is its mutual information with the target, minus the value expected by chance,
    (pair values - 1)(classes - 1) / 2n (Miller and Madow).
    """

    def _scored(self, X: pd.DataFrame, y: NDArray[Any]) -> Scored:
        labels = np.unique(y, return_inverse=True)[1]
        if self.target == "regression":
            borders = np.unique(np.quantile(y, np.linspace(0, 1, _BINS + 1)[1:-1]))
            labels = np.searchsorted(borders, y)
        values = {
            str(n): np.asarray(pd.Categorical(X[n]).codes, dtype=np.int64)
            for n in X
            if not is_number(X[n])
        }
        alone = {name: _information(codes, labels) for name, codes in values.items()}
        names = sorted(values, key=lambda n: -alone[n])[:_MOST_CATEGORIES]
        for first, second in combinations(names, 2):
            a, b = values[first], values[second]
            both = np.where((a < 0) | (b < 0), -1, a * (b.max() + 1) + b)
            if len(np.unique(both)) <= min(_MOST_VALUES, len(both) / 5):
                gain = _information(both, labels) - max(alone[first], alone[second])
                yield gain, (first, "x", second)

    def _made(self, X: pd.DataFrame, first: str, sign: str, second: str) -> "pd.Categorical[Any]":
        objects = (X[name].astype(object) for name in (first, second))
        # If all rows are missing, mapping would return numbers instead of categories.
        a, b = (values.map(str, na_action="ignore").astype("str") for values in objects)
        return pd.Categorical(a + f" {sign} " + b)


def _combined(a: Array, sign: str, b: Array) -> Array:
    """Return the result of an operation; infinite and undefined results become missing."""
    with np.errstate(all="ignore"):
        made = _OPERATIONS[sign](a, b)
    return np.where(np.isfinite(made), made, np.nan)


def _ranks(column: Array) -> Array:
    """Return ranks; missing values get the middle rank."""
    ranks: Array = rankdata(column, nan_policy="omit")
    return np.where(np.isnan(ranks), (np.count_nonzero(~np.isnan(ranks)) + 1) / 2, ranks)


def _information(codes: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return the mutual information in nats, minus the value expected by chance."""
    n_values, n_labels = len(np.unique(codes)), len(np.unique(labels))
    chance = (n_values - 1) * (n_labels - 1) / (2 * len(labels))
    return float(mutual_info_score(codes, labels)) - chance


def _new_name(pair: tuple[str, str, str], X: pd.DataFrame) -> str:
    name = " ".join(pair)
    while name in X:
        name = f"({name})"
    return name
