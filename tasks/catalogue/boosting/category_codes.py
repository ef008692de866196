"""Categories of a table as codes, for models that take codes and gaps as they are."""

from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

__all__ = ["CategoryCodes"]

_MOST_CATEGORIES = 254
"""Of a column, the most frequent ones; codes must fit in a byte beside that of a gap."""


class CategoryCodes(TransformerMixin, BaseEstimator):
    """Makes codes of categories, the most frequent first; gaps, rare and unseen ones are NaN.

    Numbers, and matrices, stay as they are.
    """

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn the categories of each column; `is_category_`, shape (p,), says which have any."""
        self.categories_: dict[int, NDArray[np.object_]] = {}
        self.is_category_ = np.zeros(X.shape[1], dtype=np.bool_)
        if isinstance(X, pd.DataFrame):
            for i, name in enumerate(X):
                if pd.api.types.is_numeric_dtype(X[name]):
                    continue
                counts = X[name].astype(object).value_counts(sort=False).sort_index()
                ranked = counts.sort_values(ascending=False, kind="stable")
                self.categories_[i] = ranked.index[:_MOST_CATEGORIES].to_numpy(dtype=object)
                self.is_category_[i] = True
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return codes and numbers, shape (n, p)."""
        if not isinstance(X, pd.DataFrame):
            return np.asarray(X, dtype=np.float64)
        coded = np.empty(X.shape)
        for i, name in enumerate(X):
            if i not in self.categories_:
                coded[:, i] = X[name].to_numpy(dtype=np.float64)
                continue
            known = pd.Index(self.categories_[i], dtype=object)
            codes = known.get_indexer(pd.Index(X[name].astype(object), dtype=object))
            coded[:, i] = np.where(codes < 0, np.nan, codes)
        return coded
