"""Many configurations at once as arrays, for surrogates that score thousands of them per ask.

A candidate is a row of `algorithms` (which algorithm each searched step takes, counted within the
step) and a row of `units` (positions in [0, 1] of all hyperparameters, active or not).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from ConfigSpace.conditions import Condition, Conjunction
from ConfigSpace.hyperparameters import (
    CategoricalHyperparameter,
    Hyperparameter,
    OrdinalHyperparameter,
)
from numpy.typing import NDArray

from prefect_tune.optimizers.space.configuration import Choice, Configuration, is_allowed
from prefect_tune.optimizers.space.encoding import Encoding
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.unit_interval import Value, plain_value, to_unit

__all__ = ["CandidateSpace", "Candidates"]

_INACTIVE = -1.0
_PATHS = 20_000
"""More paths than this are not listed: rows are drawn, and those that cannot run dropped."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """n candidates.

    Attributes:
        algorithms: Shape (n, K), integers.
        units: Shape (n, d).
    """

    algorithms: NDArray[np.intp]
    units: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.algorithms)

    def __getitem__(self, rows: Any) -> "Candidates":
        return Candidates(self.algorithms[rows], self.units[rows])

    def joined(self, *others: "Candidates") -> "Candidates":
        """These and others, in order."""
        parts = (self, *others)
        return Candidates(
            np.concatenate([p.algorithms for p in parts]), np.concatenate([p.units for p in parts])
        )


@dataclass(frozen=True, slots=True)
class _Column:
    """What the arrays need to know of one hyperparameter.

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


class CandidateSpace:
    """Samples, changes and encodes candidates of one space.

    Args:
        space: The full space; it gives the columns.
        proposed: The part of it that may be proposed, the full one by default.
    """

    def __init__(self, space: Space, proposed: Space | None = None) -> None:
        self.space, self.proposed = space, proposed or space
        self.encoding = Encoding(space)
        self._ids = [[a.id for a in s.algorithms] for s in space.searched]
        self._allowed = [
            np.array([ids.index(a.id) for a in s.algorithms])
            for ids, s in zip(self._ids, self.proposed.searched, strict=True)
        ]
        self._offsets = np.cumsum([0, *(len(ids) for ids in self._ids)])
        self._columns = self._describe_columns()
        self._is_proposed = [
            np.isin(np.arange(len(ids)), a) for ids, a in zip(self._ids, self._allowed, strict=True)
        ]
        self.default_units = np.array(
            [
                to_unit(h, h.default_value)
                for h in map(self.encoding.hyperparameter, self.encoding.columns)
            ]
        )
        self._rows: dict[Configuration, tuple[list[int], NDArray[np.float64]]] = {}
        self._position = {column: i for i, column in enumerate(self.encoding.columns)}
        self._values: list[dict[float, Value]] = [
            {float(unit): plain_value(self.encoding.hyperparameter(column).default_value)}
            for column, unit in zip(self.encoding.columns, self.default_units, strict=True)
        ]
        """By column, the values whose positions are known: a way there and back may lose digits."""
        self._feasible: dict[tuple[int, ...], bool] = {}
        self._paths: NDArray[np.intp] | None = None
        if self.proposed.n_paths <= _PATHS:
            self._paths = np.array([self._indices(path) for path in self.proposed.paths()])

    def sample(self, n: int, rng: np.random.Generator) -> Candidates:
        """Up to n candidates from the prior, uniform over the paths that can run."""
        if self._paths is not None:
            algorithms = self._paths[rng.integers(len(self._paths), size=n)]
        else:
            algorithms = np.column_stack([rng.choice(a, size=n) for a in self._allowed])
            algorithms = algorithms[self._can_run(algorithms)]
        return Candidates(algorithms, rng.random((len(algorithms), len(self._columns))))

    def encode(self, configurations: Iterable[Configuration]) -> Candidates:
        """Configurations as candidates; hyperparameters that are not active have their defaults."""
        rows = [self._encoded(c) for c in configurations]
        algorithms = np.array([a for a, _ in rows], dtype=np.intp)
        units = np.array([u for _, u in rows], dtype=np.float64)
        shapes = (len(rows), len(self._ids)), (len(rows), len(self._columns))
        return Candidates(algorithms.reshape(shapes[0]), units.reshape(shapes[1]))

    def decode(self, candidates: Candidates, row: int) -> Configuration | None:
        """The configuration of a row; None when its values are forbidden together.

        Values of encoded configurations and default values come back to the last digit, or what
        was made with them would not be found in the cache.
        """
        path = tuple(self._ids[k][a] for k, a in enumerate(candidates.algorithms[row]))
        units = candidates.units[row]
        rough = self.encoding.from_cube(path, units)
        choices = [
            (step, Choice(choice.algorithm, tuple(self._exact(step, choice, units))))
            for step, choice in rough.choices
        ]
        configuration = Configuration(tuple(choices))
        return configuration if is_allowed(self.space, configuration) else None

    def _exact(
        self, step: str, choice: Choice, units: NDArray[np.float64]
    ) -> Iterable[tuple[str, Value]]:
        """The values of a choice, known ones in place of those near them."""
        for name, value in choice.values:
            i = self._position.get((step, choice.algorithm, name))
            if i is None or self._columns[i].size:
                yield name, value
            else:
                yield name, self._values[i].get(float(units[i]), value)

    def features(self, candidates: Candidates) -> NDArray[np.float64]:
        """One-hot paths and positions, inactive ones -1, shape (n, N + d)."""
        n = len(candidates)
        one_hot = np.zeros((n, self._offsets[-1]))
        one_hot[np.arange(n)[:, None], candidates.algorithms + self._offsets[:-1]] = 1.0
        active = self.active(candidates)
        positions = np.where(active, self._snapped(candidates.units), _INACTIVE)
        return np.hstack([one_hot, positions])

    def prefixes(self, features: NDArray[np.float64]) -> list[NDArray[np.void]]:
        """Of each step, what makes its output, comparable: equal where all up to it is equal.

        Args:
            features: Those of candidates, shape (n, N + d).

        Returns:
            K arrays of shape (n,), one per searched step.
        """
        step_of_algorithm = np.repeat(np.arange(len(self._ids)), [len(ids) for ids in self._ids])
        step = np.concatenate([step_of_algorithm, [c.step for c in self._columns]])
        rows = [np.ascontiguousarray(features[:, step <= k]) for k in range(len(self._ids))]
        return [part.view((np.void, part.strides[0])).ravel() for part in rows]

    def neighbours(
        self, candidates: Candidates, n: int, rng: np.random.Generator, deviation: float = 0.2
    ) -> tuple[Candidates, NDArray[np.intp]]:
        """Up to n neighbours of each candidate, and the row each comes from.

        A neighbour differs in one thing, drawn evenly from its steps with a choice and its active
        hyperparameters: another algorithm, another category, or a normal step from the number.
        """
        origin = np.repeat(np.arange(len(candidates)), n)
        algorithms = candidates.algorithms[origin]
        units = candidates.units[origin]
        steps = np.array([len(a) > 1 for a in self._allowed])
        if not len(origin):
            return Candidates(algorithms, units), origin
        changeable = np.hstack([np.tile(steps, (len(origin), 1)), self.active(candidates)[origin]])
        changed = np.where(changeable, rng.random(changeable.shape), -1.0).argmax(axis=1)
        for k, allowed in enumerate(self._allowed):
            rows = np.flatnonzero(changed == k)
            drawn = rng.choice(allowed, size=len(rows))
            same = drawn == algorithms[rows, k]
            following = allowed[(np.searchsorted(allowed, drawn[same]) + 1) % len(allowed)]
            drawn[same] = following
            algorithms[rows, k] = drawn
        rows = np.flatnonzero(changed >= len(steps))
        columns = changed[rows] - len(steps)
        sizes = np.array([c.size for c in self._columns], dtype=np.intp)[columns]
        before = units[rows, columns]
        moved = before + deviation * rng.standard_normal(len(rows))
        moved = 1 - np.abs(1 - np.abs(moved) % 2)  # reflected, so that ranges are not left
        others = np.maximum(sizes - 1, 1)
        away = 1 + np.minimum(np.floor(rng.random(len(rows)) * others), others - 1)
        with_size = np.maximum(sizes, 1)
        redrawn = (np.floor(before * with_size) + away) % with_size
        units[rows, columns] = np.where(sizes > 0, (redrawn + 0.5) / with_size, moved)
        kept = self._can_run(algorithms)
        return Candidates(algorithms[kept], units[kept]), origin[kept]

    def may_be_proposed(self, candidates: Candidates) -> NDArray[np.bool_]:
        """Which rows use only algorithms of the part that may be proposed, shape (n,)."""
        columns = zip(self._is_proposed, candidates.algorithms.T, strict=True)
        inside: NDArray[np.bool_] = np.all([known[column] for known, column in columns], axis=0)
        return inside

    def active(self, candidates: Candidates) -> NDArray[np.bool_]:
        """Which hyperparameters each candidate has, shape (n, d)."""
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

    def _encoded(self, configuration: Configuration) -> tuple[list[int], NDArray[np.float64]]:
        if configuration not in self._rows:
            units, is_active = self.encoding.to_cube(configuration)
            units = np.where(is_active, units, self.default_units)
            self._rows[configuration] = self._indices(configuration.path), units
            for step, choice in configuration.choices:
                for name, value in choice.values:
                    i = self._position.get((step, choice.algorithm, name))
                    if i is not None:
                        self._values[i][float(units[i])] = value
        return self._rows[configuration]

    def _indices(self, path: Path) -> list[int]:
        return [ids.index(a) for ids, a in zip(self._ids, path, strict=True)]

    def _can_run(self, algorithms: NDArray[np.intp]) -> NDArray[np.bool_]:
        rows = [tuple(int(a) for a in row) for row in algorithms]
        for row in set(rows) - self._feasible.keys():
            path = tuple(self._ids[k][a] for k, a in enumerate(row))
            self._feasible[row] = self.space.is_feasible(path)
        return np.array([self._feasible[row] for row in rows], dtype=np.bool_)

    def _snapped(self, units: NDArray[np.float64]) -> NDArray[np.float64]:
        """Categories in the middle of their shares, as `Encoding.to_cube` has them."""
        sizes = np.array([c.size for c in self._columns])
        with_size = np.maximum(sizes, 1)
        middle = (np.minimum(np.floor(units * with_size), with_size - 1) + 0.5) / with_size
        return np.where(sizes > 0, middle, units)

    def _vectors(self, column: _Column, units: NDArray[np.float64]) -> NDArray[np.float64]:
        """What ConfigSpace's conditions read: a row per hyperparameter of the algorithm."""
        vectors = np.zeros((len(column.siblings), len(units)))
        for row, i in enumerate(column.siblings):
            if i is None:
                continue
            h, size = self.encoding.hyperparameter(self.encoding.columns[i]), self._columns[i].size
            if size:
                vectors[row] = np.minimum(np.floor(units[:, i] * size), size - 1)
            else:
                vectors[row] = h.to_vector(h.to_value(units[:, i]))
        return vectors

    def _describe_columns(self) -> tuple[_Column, ...]:
        steps = [s.name for s in self.space.searched]
        position = {column: i for i, column in enumerate(self.encoding.columns)}
        columns = []
        for step, algorithm_id, name in self.encoding.columns:
            hyperparameters = self.space.step(step).algorithm(algorithm_id).hyperparameters
            siblings = {n: position.get((step, algorithm_id, n)) for n in hyperparameters}
            parents = [siblings[h.name] for h in hyperparameters.parents_of[name]]
            k = steps.index(step)
            columns.append(
                _Column(
                    step=k,
                    algorithm=self._ids[k].index(algorithm_id),
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
