"""Configurations as vectors: a one-hot path, and all hyperparameters in the unit cube with a mask.

The border between what users write and what models see is crossed here and nowhere else.
"""

from typing import Any

import numpy as np
from ConfigSpace.hyperparameters import Constant, Hyperparameter
from numpy.typing import NDArray

from prefect_tune.optimizers.space.configuration import (
    Choice,
    Configuration,
    active_hyperparameters,
)
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.unit_interval import Value, from_unit, to_unit

Column = tuple[str, str, str]
"""Step, algorithm and hyperparameter that a column of the unit cube stands for."""


class Encoding:
    """Vectors for the configurations of one space.

    Args:
        space: The space; its searched steps give N algorithms and d hyperparameters in all.

    Attributes:
        algorithms: (step, algorithm) of each of the N columns of a one-hot path.
        columns: (step, algorithm, hyperparameter) of each of the d columns of the cube.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.algorithms = tuple((s.name, a.id) for s in space.searched for a in s.algorithms)
        self._place = {pair: i for i, pair in enumerate(self.algorithms)}
        self._hyperparameters: dict[Column, Hyperparameter[Any, Any]] = {
            (s.name, a.id, h.name): h
            for s in space.searched
            for a in s.algorithms
            for h in a.hyperparameters.values()
            if not isinstance(h, Constant)
        }
        self.columns = tuple(self._hyperparameters)
        self._position = {column: i for i, column in enumerate(self.columns)}

    def hyperparameter(self, column: Column) -> Hyperparameter[Any, Any]:
        """Return the hyperparameter of a column of the cube."""
        return self._hyperparameters[column]

    def one_hot(self, path: Path) -> NDArray[np.float64]:
        """Return a vector, shape (N,), with exactly one 1 per searched step."""
        vector = np.zeros(len(self.algorithms))
        for step, algorithm in zip(self.space.searched, path, strict=True):
            vector[self._place[step.name, algorithm]] = 1.0
        return vector

    def to_cube(
        self, configuration: Configuration
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return positions in [0, 1], shape (d,), and which are active; the others are 0.5."""
        positions = np.full(len(self.columns), 0.5)
        active = np.zeros(len(self.columns), dtype=np.bool_)
        for step, choice in configuration.choices:
            for name, value in choice.values:
                column = (step, choice.algorithm, name)
                if column in self._position:
                    positions[self._position[column]] = to_unit(
                        self._hyperparameters[column], value
                    )
                    active[self._position[column]] = True
        return positions, active

    def from_cube(self, path: Path, positions: NDArray[np.float64]) -> Configuration:
        """Return the configuration of `path` with the values at `positions`, shape (d,)."""
        choices = []
        for step, algorithm_id in zip(self.space.searched, path, strict=True):
            algorithm = step.algorithm(algorithm_id)
            values: dict[str, Value] = {}
            for h in active_hyperparameters(algorithm.hyperparameters, values):
                column = self._position.get((step.name, algorithm_id, h.name))
                u = 0.5 if column is None else float(positions[column])
                values[h.name] = from_unit(h, u)
            choices.append((step.name, Choice(algorithm_id, tuple(sorted(values.items())))))
        return Configuration(tuple(choices))
