"""The hyperparameters of a space as columns of the unit cube, and which of them are active."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from ConfigSpace.conditions import Condition, Conjunction
from ConfigSpace.hyperparameters import (
    CategoricalHyperparameter,
    Hyperparameter,
    IntegerHyperparameter,
    OrdinalHyperparameter,
)
from numpy.typing import NDArray

from prefect_tune.optimizers.space.candidates import Candidates
from prefect_tune.optimizers.space.encoding import Encoding
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.unit_interval import integers_at

__all__ = ["Columns"]


@dataclass(frozen=True, slots=True)
class _Column:
    """One hyperparameter, as the arrays need it.

    Attributes:
        step: Which searched step it belongs to.
        algorithm: Which algorithm of that step.
        size: Number of its values if it is a category or an ordinal, else 0.
        conditions: When it is active.
        parents: Columns that must be active for it to be.
        siblings: Columns of all hyperparameters of its algorithm; None for a constant.
    """

    step: int
    algorithm: int
    size: int
    conditions: tuple[Condition | Conjunction, ...]
    parents: tuple[int, ...]
    siblings: tuple[int | None, ...]


class Columns:
    """All hyperparameters of a space, by column.

    Args:
        space: The space.
        encoding: Names its columns.

    Attributes:
        step: Position of each column's step, shape (d,).
        sizes: Number of values of a category or an ordinal, else 0, shape (d,).
    """

    def __init__(self, space: Space, encoding: Encoding) -> None:
        self._encoding = encoding
        self._columns = _described(space, encoding)
        self.step = np.array([c.step for c in self._columns], dtype=np.intp)
        self.sizes = np.array([c.size for c in self._columns], dtype=np.intp)

    def __len__(self) -> int:
        return len(self._columns)

    def active(self, candidates: Candidates) -> NDArray[np.bool_]:
        """Return which hyperparameters each candidate has, shape (n, d)."""
        active = np.zeros(candidates.units.shape, dtype=np.bool_)
        for i, column in enumerate(self._columns):  # parents stand before their children
            active[:, i] = candidates.algorithms[:, column.step] == column.algorithm
            rows = np.flatnonzero(active[:, i])
            if not column.conditions or not len(rows):
                continue
            active[rows, i] = active[rows][:, list(column.parents)].all(axis=1)
            vectors = self._vectors(column, candidates.units[rows])
            for condition in column.conditions:
                active[rows, i] &= condition.satisfied_by_vector_array(vectors)
        return active

    def snapped(self, units: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return categories in the middle of their shares, as `Encoding.to_cube` has them."""
        with_size = np.maximum(self.sizes, 1)
        middle = (np.minimum(np.floor(units * with_size), with_size - 1) + 0.5) / with_size
        return np.where(self.sizes > 0, middle, units)

    def _vectors(self, column: _Column, units: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what ConfigSpace's conditions read, a row per hyperparameter of the algorithm."""
        vectors = np.zeros((len(column.siblings), len(units)))
        for row, i in enumerate(column.siblings):
            if i is None:
                continue
            h = self._encoding.hyperparameter(self._encoding.columns[i])
            size = self._columns[i].size
            if size:
                vectors[row] = np.minimum(np.floor(units[:, i] * size), size - 1)
            elif isinstance(h, IntegerHyperparameter):
                vectors[row] = h.to_vector(integers_at(h, units[:, i]))
            else:
                vectors[row] = h.to_vector(h.to_value(units[:, i]))
        return vectors


def _described(space: Space, encoding: Encoding) -> tuple[_Column, ...]:
    steps = [s.name for s in space.searched]
    ids = [[a.id for a in s.algorithms] for s in space.searched]
    position = {column: i for i, column in enumerate(encoding.columns)}
    columns = []
    for step, algorithm_id, name in encoding.columns:
        hyperparameters = space.step(step).algorithm(algorithm_id).hyperparameters
        siblings = {n: position.get((step, algorithm_id, n)) for n in hyperparameters}
        parents = [siblings[h.name] for h in hyperparameters.parents_of[name]]
        k = steps.index(step)
        columns.append(
            _Column(
                step=k,
                algorithm=ids[k].index(algorithm_id),
                size=_n_categories(hyperparameters[name]),
                conditions=tuple(hyperparameters.parent_conditions_of[name]),
                parents=tuple(i for i in parents if i is not None),
                siblings=tuple(siblings.values()),
            )
        )
    return tuple(columns)


def _n_categories(hyperparameter: Hyperparameter[Any, Any]) -> int:
    if isinstance(hyperparameter, CategoricalHyperparameter):
        return len(hyperparameter.choices)
    if isinstance(hyperparameter, OrdinalHyperparameter):
        return len(hyperparameter.sequence)
    return 0
