"""From patient events to a matrix: count, sum or average each code (FLASH, section 5)."""

from typing import Any, Self

import numpy as np
import pandas as pd
from ConfigSpace import Categorical, ConfigurationSpace, Integer
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin

from prefect_tune.optimizers.space import Algorithm, Flags, Step
from prefect_tune.tasks.events import EventRows

__all__ = ["CONSTRUCT_FEATURES", "DENSIFY", "EventAggregation", "ToDense"]


class EventAggregation(TransformerMixin, BaseEstimator):
    """One column per code that enough patients of the training rows have.

    Events without a time are facts: their column is 1 where a patient has them, whatever the
    aggregation.

    Args:
        min_frequency: Patients of the training rows that must have a code.
        aggregation: `binary` is 1 where a row has the code; `count` counts its events; `sum` adds
            their values, 1 for an event without one; `average` is the mean of the values there
            are, 1 where there are none.
    """

    def __init__(self, min_frequency: int = 3, aggregation: str = "count") -> None:
        self.min_frequency = min_frequency
        self.aggregation = aggregation

    def fit(self, X: EventRows, y: Any = None) -> Self:  # noqa: ARG002
        """Choose the codes.

        Raises:
            ValueError: If no code is frequent enough.
        """
        row, event = X.expand()
        code = X.events["code"].cat.codes.to_numpy()[event]
        patient, patients = pd.factorize(X.rows["subject_id"])
        pairs = np.unique(code.astype(np.int64) * len(patients) + patient[row])
        frequency = np.bincount(pairs // len(patients), minlength=len(X.codes))
        kept = np.flatnonzero(frequency >= self.min_frequency)
        if not len(kept):
            raise ValueError(f"no code is had by {self.min_frequency} patients or more")
        self.codes_ = [X.codes[i] for i in kept]
        self.n_features_in_ = len(X.codes)
        return self

    def transform(self, X: EventRows) -> sparse.csr_array:
        """Shape (rows, codes kept)."""
        row, event = X.expand()
        position = {code: i for i, code in enumerate(self.codes_)}
        column_of = np.array([position.get(code, -1) for code in X.codes], dtype=np.int64)
        column = column_of[X.events["code"].cat.codes.to_numpy()[event]]
        is_kept = column >= 0
        row, event, column = row[is_kept], event[is_kept], column[is_kept]
        value = X.events["value"].to_numpy()[event]
        is_static = X.events["time"].isna().to_numpy()[event]
        return self._aggregate(row, column, value, is_static, (len(X), len(self.codes_)))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:  # noqa: ARG002
        """The codes kept."""
        return np.array(self.codes_, dtype=object)

    def _aggregate(
        self,
        row: NDArray[np.int64],
        column: NDArray[np.int64],
        value: NDArray[np.float64],
        is_static: NDArray[np.bool_],
        shape: tuple[int, int],
    ) -> sparse.csr_array:
        made: NDArray[np.float64]
        cell, inverse = np.unique(row * shape[1] + column, return_inverse=True)
        count = np.bincount(inverse)
        has_value = ~np.isnan(value)
        match self.aggregation:
            case "binary":
                made = np.ones(len(cell))
            case "count":
                made = count.astype(np.float64)
            case "sum":
                made = np.bincount(inverse, np.where(has_value, value, 1.0)).astype(np.float64)
            case "average":
                n_values = np.bincount(inverse, has_value)
                total = np.bincount(inverse, np.where(has_value, value, 0.0))
                made = np.divide(total, n_values, out=np.ones(len(cell)), where=n_values > 0)
            case _:
                raise ValueError(
                    f"aggregation is binary, count, sum or average, not {self.aggregation!r}"
                )
        made[np.bincount(inverse, is_static) > 0] = 1.0
        return sparse.csr_array((made, (cell // shape[1], cell % shape[1])), shape=shape)


class ToDense(TransformerMixin, BaseEstimator):
    """The same matrix with every zero written out."""

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Nothing to learn."""
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Shape as it was."""
        dense: NDArray[np.float64] = X.toarray() if sparse.issparse(X) else np.asarray(X)
        return dense


CONSTRUCT_FEATURES = Step(
    "construct features",
    (
        Algorithm(
            id="aggregate",
            estimator=f"{__name__}.EventAggregation",
            hyperparameters=ConfigurationSpace(
                space=[
                    Integer("min_frequency", (2, 5), default=3),
                    Categorical(
                        "aggregation", ["binary", "count", "sum", "average"], default="count"
                    ),
                ]
            ),
            flags=Flags(output="sparse"),
        ),
    ),
)
DENSIFY = Step(
    "densify",
    (
        Algorithm(id="keep_sparse"),
        Algorithm(id="to_dense", estimator=f"{__name__}.ToDense", flags=Flags(output="dense")),
    ),
)
