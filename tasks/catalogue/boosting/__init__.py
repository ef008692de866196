"""Boosted trees of other libraries with scikit-learn's interface, for tables and matrices.

`light_gbm`, `xg_boost` and `cat_boost` each need the library of the same name (XGBoost and CatBoost
come with `prefect-tune[boosting]`). The library itself handles missing values of tables; categories
become codes. Matrices are converted to single precision, and sparse matrices to CSR.
"""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin, clone
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


class _Native(BaseEstimator):
    """Boosted trees from a library's `estimator`, with categories as codes."""

    prediction_settings: Mapping[str, Any] = {}
    """Arguments for the library's predictions."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def _fit_coded(self, model: Any, X: Any, y: NDArray[Any], weights: Weights) -> None:
        """Fit the library's model to codes and numbers."""
        raise NotImplementedError

    def _seen(self, X: Any) -> Any:
        """Return codes and numbers in the form that the library needs."""
        return X

    def _fit(self, X: Any, y: NDArray[Any], weights: Weights) -> None:
        validate_data(self, X, skip_check_array=True)
        self.codes_ = CategoryCodes().fit(X)
        self.estimator_ = clone(self.estimator)
        self._fit_coded(self.estimator_, self.codes_.transform(X), y, weights)

    def _predicted(self, what: str, X: Any) -> Any:
        validate_data(self, X, reset=False, skip_check_array=True)  # codes are matched by position
        coded = self._seen(self.codes_.transform(X))
        return getattr(self.estimator_, what)(coded, **self.prediction_settings)


class NativeClassifier(ClassifierMixin, _Native):
    """Boosted trees for classification, with any labels."""

    def fit(self, X: Any, y: Any, sample_weight: Weights = None) -> Self:
        """Fit to a table or matrix, shape (n, p)."""
        self.classes_, positions = np.unique(y, return_inverse=True)
        self._fit(X, positions, sample_weight)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, shape (n, classes)."""
        return np.asarray(self._predicted("predict_proba", X), dtype=np.float64)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row, shape (n,)."""
        return self.labels_of_probabilities(self.predict_proba(X))

    def labels_of_probabilities(self, probabilities: NDArray[np.float64]) -> NDArray[Any]:
        """Return the most probable classes, shape (n,), given probabilities, shape (n, classes)."""
        return self.classes_[probabilities.argmax(axis=1)]


class NativeRegressor(RegressorMixin, _Native):
    """Boosted trees for regression."""

    def fit(self, X: Any, y: Any, sample_weight: Weights = None) -> Self:
        """Fit to a table or matrix, shape (n, p)."""
        self._fit(X, np.asarray(y, dtype=np.float64), sample_weight)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return predicted numbers, shape (n,)."""
        return np.asarray(self._predicted("predict", X), dtype=np.float64)
