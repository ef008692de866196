"""Matrices built from patient events: each code is counted, summed or averaged (FLASH, section 5).

`REPAIRS` convert the input of a step to data that the step accepts, and are fitted together with
the step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import validate_data

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags
from prefect_tune.tasks.catalogue.notation import choice, declare, step, whole
from prefect_tune.tasks.data.events import positions

if TYPE_CHECKING:
    from prefect_tune.tasks.data.events import EventRows


class EventAggregation(TransformerMixin, BaseEstimator):
    """One column per code found in at least `min_frequency` patients of the training rows.

    Static events, which have no time, are always coded as 1. For other events, the aggregation
    `binary` is 1 if a row has the code, `count` counts the code's events, `sum` adds the events'
    values (1 for an event without a value), and `average` is the mean of existing values (1 if
    there are none).
    """

    def __init__(self, min_frequency: int = 3, aggregation: str = "count") -> None:
        self.min_frequency = min_frequency
        self.aggregation = aggregation

    def fit(self, X: "EventRows", y: Any = None) -> Self:  # noqa: ARG002
        """Choose the codes; raise `ValueError` if no code is frequent enough."""
        vocabulary, longest = X.codes, X.longest_rows()
        start, stop = X.start[longest], X.stop[longest]
        codes = X.events["code"].cat.codes.to_numpy()[positions(start, stop)]
        offsets = offsets_of(stop - start)
        has = sparse.csr_array(
            (np.ones(len(codes), dtype=bool), codes.astype(np.int32), offsets.astype(np.int32)),
            shape=(len(start), len(vocabulary)),
        )
        has.sum_duplicates()
        frequency = np.bincount(has.indices, minlength=len(vocabulary))
        kept = np.flatnonzero(frequency >= self.min_frequency)
        if not len(kept):
            raise ValueError(f"no code occurs in {self.min_frequency} or more patients")
        self.codes_ = [vocabulary[i] for i in kept]
        self.n_features_in_ = len(vocabulary)
        return self

    def transform(self, X: "EventRows") -> sparse.csr_array:
        """Return the matrix of codes, shape (rows, chosen codes)."""
        position = {code: i for i, code in enumerate(self.codes_)}
        column_of = np.array([position.get(code, -1) for code in X.codes], dtype=np.int32)
        event = positions(X.start, X.stop)
        column = column_of[X.events["code"].cat.codes.to_numpy()[event]]
        is_kept = column >= 0
        offsets = np.append(0, np.cumsum(is_kept))[offsets_of(X.stop - X.start)]
        event, column = event[is_kept], column[is_kept]
        cells = Cells.of(column, offsets, len(self.codes_))
        event = event[cells.order]
        value = X.events["value"].to_numpy()[event]
        is_static = np.isnat(X.events["time"].to_numpy()[event])
        made = self._aggregate(cells, value, is_static)
        return sparse.csr_array((made, cells.column, cells.offsets), shape=(len(X), cells.width))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:  # noqa: ARG002
        """Return the chosen codes."""
        return np.array(self.codes_, dtype=object)

    def _aggregate(
        self, cells: "Cells", value: NDArray[np.float64], is_static: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        made: NDArray[np.float64]
        match self.aggregation:
            case "binary":
                made = np.ones(len(cells.column))
            case "count":
                made = cells.count.astype(np.float64)
            case "sum":
                made = cells.total(np.where(np.isnan(value), 1.0, value))
            case _:
                has_value = ~np.isnan(value)
                n_values = cells.total(has_value)
                total = cells.total(np.where(has_value, value, 0.0))
                made = np.divide(total, n_values, out=np.ones(len(total)), where=n_values > 0)
        made[cells.of_event[is_static]] = 1.0
        return made


@dataclass(frozen=True)
class Cells:
    """Cells of a sparse matrix, each containing one or more events, ordered by row and column.

    Attributes:
        order: Original positions of the events, sorted by cell, shape (events,).
        first: Position in `order` of each cell's first event, shape (cells,).
        column: Column of each cell, shape (cells,).
        offsets: First cell of each row and, at the end, the number of cells, shape (rows + 1,).
        width: Number of columns.
    """

    order: NDArray[np.int32]
    first: NDArray[np.int64]
    column: NDArray[np.int32]
    offsets: NDArray[np.int32]
    width: int

    @classmethod
    def of(cls, column: NDArray[np.int32], offsets: NDArray[np.int64], width: int) -> Self:
        """Sort events into cells; row i has the events from offsets[i] up to offsets[i + 1]."""
        positions = np.arange(len(column), dtype=np.int32)
        matrix = sparse.csr_array(
            (positions, column, offsets.astype(np.int32)), shape=(len(offsets) - 1, width)
        )
        # Two transpositions amount to two counting sorts, in linear time. Events of a cell keep
        # their order, so sums of floats do not depend on neighboring rows.
        matrix = matrix.tocsc().tocsr()
        is_first = np.diff(matrix.indices, prepend=-1) != 0
        is_first[matrix.indptr[:-1][np.diff(matrix.indptr) > 0]] = True
        first = np.flatnonzero(is_first)
        row_first = np.searchsorted(first, matrix.indptr).astype(np.int32)
        return cls(matrix.data, first, matrix.indices[first], row_first, width)

    @cached_property
    def count(self) -> NDArray[np.int64]:
        """Number of events in each cell, shape (cells,)."""
        return np.diff(self.first, append=len(self.order))

    @cached_property
    def of_event(self) -> NDArray[np.int64]:
        """Cell of each event, sorted by cell, shape (events,)."""
        return np.repeat(np.arange(len(self.first)), self.count)

    def take(self, events: NDArray[np.intp]) -> Self:
        """Return the cells of a subset of events, given as sorted positions in `order`."""
        cell = self.of_event[events]
        first = np.flatnonzero(np.diff(cell, prepend=-1))
        kept = cell[first]
        offsets = np.searchsorted(kept, self.offsets).astype(np.int32)
        return type(self)(self.order[events], first, self.column[kept], offsets, self.width)

    def total(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the sum of each cell's values; `values` follow the order in `order`."""
        return np.bincount(self.of_event, values).astype(np.float64, copy=False)


def offsets_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the start of each contiguous piece, and the end of the last piece."""
    return np.append(0, np.cumsum(lengths))


class ToDense(TransformerMixin, BaseEstimator):
    """Transformer that converts a sparse matrix to a dense array."""

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Do nothing, because the conversion learns nothing."""
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the dense matrix, of the same shape."""
        return X.toarray() if sparse.issparse(X) else np.asarray(X)


CONSTRUCT_FEATURES = step(
    "construct features",
    declare(
        f"{__name__}.EventAggregation",
        whole(min_frequency=(2, 5, 3)),
        choice(aggregation=["binary", "count", "sum", "average"], default="count"),
        name="aggregate",
        flags=Flags(output="sparse"),
    ),
)
DENSIFY = step(
    "densify",
    Algorithm(id="keep_sparse"),
    declare(f"{__name__}.ToDense", flags=Flags(output="dense")),
)


_MOST_CATEGORIES = 255
"""Maximum number of categories accepted by scikit-learn's histogram boosting."""


class ClipNegatives(TransformerMixin, BaseEstimator):
    """Transformer that sets negative numbers to 0."""

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn only whether the matrix is sparse."""
        self.is_sparse_ = sparse.issparse(X)
        return self

    def transform(self, X: Any) -> Any:
        """Return the matrix with negative numbers set to 0."""
        if not sparse.issparse(X):
            return np.maximum(X, 0)
        clipped = X.copy()
        clipped.data = np.maximum(clipped.data, 0)
        return clipped

    def __sklearn_is_fitted__(self) -> bool:
        return True


class BoundCategories(TransformerMixin, BaseEstimator):
    """Transformer that makes a column's rarest categories missing if it has too many categories."""

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
        """Return the table with all but the frequent categories marked as missing."""
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
"""Repairs by name; cache keys contain the names."""


def repairs_of(flags: Flags, values: Mapping[str, Any], layout: str) -> tuple[str, ...]:
    """Return the repairs that an algorithm needs for data of this layout, in order.

    Negative numbers are clipped even if the training rows contain none, because held-out rows may
    contain some.
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
