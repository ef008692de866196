"""Repairs: changes to data just before a step that could not take it as it is.

A repair is part of the fitted step, so new rows are repaired too.
"""

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin

from prefect_tune.optimizers.space.algorithm import Flags
from prefect_tune.tasks.catalogue.construction import ToDense

__all__ = ["REPAIRS", "ClipNegatives", "repairs_of"]


class ClipNegatives(TransformerMixin, BaseEstimator):
    """Transformer that sets negative numbers to 0."""

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn nothing."""
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


REPAIRS: Mapping[str, Callable[[], Any]] = {"write_out": ToDense, "clip": ClipNegatives}
"""By the names that stand in keys."""


def repairs_of(flags: Flags, values: Mapping[str, Any], layout: str) -> tuple[str, ...]:
    """Return the repairs that an algorithm needs for data of a layout, in order.

    Negative numbers are clipped also where the training rows have none: held-out rows may.
    """
    repairs = []
    if layout == "sparse" and flags.densify_when is not None:
        name, value = flags.densify_when
        if values.get(name) == value:
            repairs.append("write_out")
    needs = flags.needs_nonnegative
    if needs is True or (isinstance(needs, tuple) and values.get(needs[0]) == needs[1]):
        repairs.append("clip")
    return tuple(repairs)
