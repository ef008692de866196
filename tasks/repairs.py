"""Repairs of the input of a step, fitted with the step, so new rows are repaired too."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import validate_data

from prefect_tune.optimizers.space.algorithm import Flags
from prefect_tune.tasks.catalogue.construction import ToDense

_MOST_CATEGORIES = 255
"""Number of categories that histograms have room for."""


class ClipNegatives(TransformerMixin, BaseEstimator):
    """Transformer that sets negative numbers to 0."""

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn only whether the matrix is sparse."""
        self.is_sparse_ = sparse.issparse(X)
        return self

    def transform(self, X: Any) -> Any:
        """Return the matrix without negative numbers."""
        if not sparse.issparse(X):
            return np.maximum(X, 0)
        clipped = X.copy()
        clipped.data = np.maximum(clipped.data, 0)
        return clipped

    def __sklearn_is_fitted__(self) -> bool:
        return True


class BoundCategories(TransformerMixin, BaseEstimator):
    """Transformer of tables that turns a column's rarest categories into gaps if it has many."""

    def fit(self, X: pd.DataFrame, y: Any = None) -> Self:  # noqa: ARG002
        """Learn the most frequent categories of each column."""
        validate_data(self, X, skip_check_array=True)
        self.kept_: dict[str, list[Any]] = {}
        for name in X:
            if not pd.api.types.is_numeric_dtype(X[name]):
                counts = X[name].astype(object).value_counts(sort=False).sort_index()
                ranked = counts.sort_values(ascending=False, kind="stable")
                self.kept_[str(name)] = sorted(ranked.index[:_MOST_CATEGORIES])
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the table with the frequent categories only, in the order of training."""
        validate_data(self, X, reset=False, skip_check_array=True)
        return X.assign(
            **{
                name: pd.Categorical(
                    X[name].astype(object).where(X[name].isin(kept)), categories=kept
                )
                for name, kept in self.kept_.items()
            }
        )


REPAIRS: Mapping[str, Callable[[], Any]] = {
    "write_out": ToDense,
    "clip": ClipNegatives,
    "bound_categories": BoundCategories,
}
"""Repairs by their names in keys."""


def repairs_of(flags: Flags, values: Mapping[str, Any], layout: str) -> tuple[str, ...]:
    """Return the repairs that an algorithm needs for data of a layout, in order.

    Negative numbers are clipped even if the training rows have none, because held-out rows may.
    """
    repairs = []
    if layout == "frame" and flags.few_categories:
        repairs.append("bound_categories")
    if layout == "sparse" and flags.densify_when is not None:
        name, value = flags.densify_when
        if values.get(name) == value:
            repairs.append("write_out")
    needs = flags.needs_nonnegative
    if needs is True or (isinstance(needs, tuple) and values.get(needs[0]) == needs[1]):
        repairs.append("clip")
    return tuple(repairs)
