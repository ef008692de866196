"""Boosted trees of other libraries with scikit-learn's interface, for tables and matrices.

`light_gbm`, `xg_boost` and `cat_boost` each need the library of the same name (XGBoost and CatBoost
come with `prefect-tune[boosting]`). The library itself handles missing values of tables; categories
become codes. Matrices are converted to single precision, and sparse matrices to CSR.

With `warm_start`, another `fit` adds the missing rounds, also after pickling. The model then
equals, to the last bit, a model that was fitted at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.utils.validation import validate_data

Weights = NDArray[np.float64] | None
"""Weights of rows, shape (n,); None if all are equal."""
_MOST_CATEGORIES = 254
"""Maximum number of categories per column; all codes, including the code for missing, fit in a
byte."""


class CategoryCodes(TransformerMixin, BaseEstimator):
    """Encodes categories as codes by frequency; missing, rare and unseen ones become NaN."""

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn the layout, the categorical columns and the frequent categories of X."""
        self.categories_: dict[int, NDArray[np.object_]] = {}
        self.is_category_ = np.zeros(X.shape[1], dtype=np.bool_)
        self.is_table_ = isinstance(X, pd.DataFrame)
        if self.is_table_:
            for i, name in enumerate(X):
                if pd.api.types.is_numeric_dtype(X[name]):
                    continue
                counts = X[name].astype(object).value_counts(sort=False).sort_index()
                ranked = counts.sort_values(ascending=False, kind="stable")
                self.categories_[i] = ranked.index[:_MOST_CATEGORIES].to_numpy(dtype=object)
                self.is_category_[i] = True
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> Any:
        """Return codes and numbers, shape (n, p): float64 for a table, float32 for a matrix."""
        if sparse.issparse(X):
            matrix = sparse.csr_array(X)
            if not matrix.has_canonical_format:
                matrix = matrix.copy()
                matrix.sum_duplicates()
            parts = (
                matrix.data.astype(np.float32),
                matrix.indices.astype(np.int32, copy=False),
                matrix.indptr.astype(np.int32, copy=False),
            )
            return sparse.csr_matrix(parts, shape=matrix.shape)  # CatBoost rejects sparse arrays
        if not isinstance(X, pd.DataFrame):
            return np.asarray(X, dtype=np.float64 if self.is_table_ else np.float32)
        coded = np.empty(X.shape)
        for i, name in enumerate(X):
            if i not in self.categories_:
                coded[:, i] = X[name].to_numpy(dtype=np.float64)
                continue
            known = pd.Index(self.categories_[i], dtype=object)
            codes = known.get_indexer(pd.Index(X[name].astype(object), dtype=object))
            coded[:, i] = np.where(codes < 0, np.nan, codes)
        return coded


def round_seed(seed: int | None, n_done: int) -> int:
    """Return the seed of the round after `n_done` rounds."""
    state = np.random.SeedSequence(seed or 0, spawn_key=(n_done,)).generate_state(1)
    return int(state[0] >> 1)


def of_each_class(found: NDArray[Any]) -> NDArray[Any]:
    """Return probabilities of all classes; `found` may have only those of the second class."""
    return found if found.ndim == 2 else np.column_stack([1.0 - found, found])


class Native(BaseEstimator):
    """Boosted trees of a library, described by its `estimator`, with categories as codes."""

    rounds: ClassVar[str] = "estimator__n_estimators"
    """Parameter for the number of rounds."""
    _plain: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """Values that arguments must have for training to continue."""
    _tested: ClassVar[frozenset[str]] = frozenset()
    """Arguments with which training may continue, apart from those with a default value."""
    kept_: Any
    """Training rows before and after conversion, for adding rounds in this process; or None."""
    staged_: Any = None
    """Rows of the last stage before and after conversion, number of rounds, and sum over the
    rounds, for further stages in this process; or None."""

    def __init__(self, estimator: Any, warm_start: bool = False) -> None:
        self.estimator = estimator
        self.warm_start = warm_start

    @property
    def random_state(self) -> int | None:
        """Seed of the library's estimator."""
        seed: int | None = self.estimator.get_params().get("random_state")
        return seed

    @property
    def can_continue(self) -> bool:
        """Whether added rounds give the same model as a fit of all rounds."""
        given = self.estimator.get_params()
        is_plain = all(given.get(name) in values for name, values in self._plain.items())
        return is_plain and given.keys() <= {*type(self.estimator)().get_params(), *self._tested}

    def keep(self, n_rounds: int) -> None:
        """Drop all rounds after the first `n_rounds`."""
        self.set_params(**{self.rounds: n_rounds})
        self._keep(n_rounds)
        self.kept_ = self.staged_ = None

    def stages(self, X: Any, rounds: Sequence[int]) -> Iterator[NDArray[np.float64]]:
        """Yield probabilities or numbers as if training had ended after each number of rounds."""
        begun = self.staged_ if self.staged_ is not None and self.staged_[0] is X else None
        if begun is None or begun[2] >= rounds[0]:
            begun = X, self._coded(X), 0, None
        _, coded, n_done, total = begun
        found: Any = None
        for n_rounds in rounds:
            if n_rounds > n_done:
                found, total = self._stage(coded, total, n_done, n_rounds)
                n_done = n_rounds
                self.staged_ = X, coded, n_done, total
            yield np.asarray(found, dtype=np.float64)

    def _converted(self, coded: Any, y: NDArray[Any], weights: Weights) -> Any:
        """Return training rows in the form that the library needs."""
        raise NotImplementedError

    def _trained(self, data: Any, begun: Any, *, is_live: bool) -> Any:
        """Return the library's model after training on converted rows.

        `begun`, if any, has the first rounds; if it `is_live`, it was trained on the same `data`.
        """
        raise NotImplementedError

    def _keep(self, n_rounds: int) -> None:
        """Drop all rounds of the library's model after the first `n_rounds`."""
        raise NotImplementedError

    def _predicted(self, coded: Any) -> Any:
        """Return probabilities, shape (n, classes), or numbers, shape (n,)."""
        raise NotImplementedError

    def _stage(self, coded: Any, total: Any, n_done: int, n_rounds: int) -> tuple[Any, Any]:
        """Return predictions after `n_rounds` rounds, and the sum over the rounds.

        `total` is the sum over the first `n_done` rounds.
        """
        raise NotImplementedError

    def _coded(self, X: Any) -> Any:
        validate_data(self, X, reset=False, skip_check_array=True)  # codes are matched by position
        return self.codes_.transform(X)

    def _fit(self, X: Any, y: NDArray[Any], weights: Weights) -> None:
        is_continued = self.warm_start and self.can_continue
        begun = getattr(self, "estimator_", None) if is_continued else None
        if is_live := begun is not None and self.kept_ is not None and self.kept_[0] is X:
            data = self.kept_[1]
        else:
            self.staged_ = None
            validate_data(self, X, skip_check_array=True)
            self.codes_ = CategoryCodes().fit(X)
            data = self._converted(self.codes_.transform(X), y, weights)
        self.estimator_ = self._trained(data, begun, is_live=is_live)
        self.kept_ = (X, data) if self.warm_start else None

    def __getstate__(self) -> Any:
        """Return the state without training rows."""
        return {**super().__getstate__(), "kept_": None, "staged_": None}


class NativeClassifier(ClassifierMixin, Native):
    """Boosted trees for classification, with any labels."""

    def fit(self, X: Any, y: Any, sample_weight: Weights = None) -> Self:
        """Fit to a table or matrix, shape (n, p)."""
        self.classes_, positions = np.unique(y, return_inverse=True)
        self._fit(X, positions, sample_weight)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, shape (n, classes)."""
        return np.asarray(self._predicted(self._coded(X)), dtype=np.float64)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row, shape (n,)."""
        return self.labels_of_probabilities(self.predict_proba(X))

    def labels_of_probabilities(self, probabilities: NDArray[np.float64]) -> NDArray[Any]:
        """Return the most probable classes, shape (n,), given probabilities, shape (n, classes)."""
        return self.classes_[probabilities.argmax(axis=1)]


class NativeRegressor(RegressorMixin, Native):
    """Boosted trees for regression."""

    def fit(self, X: Any, y: Any, sample_weight: Weights = None) -> Self:
        """Fit to a table or matrix, shape (n, p)."""
        self._fit(X, np.asarray(y, dtype=np.float64), sample_weight)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return predicted numbers, shape (n,)."""
        return np.asarray(self._predicted(self._coded(X)), dtype=np.float64)
