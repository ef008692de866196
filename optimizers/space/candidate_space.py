"""Configurations as vectors: one, or many at once for surrogates that score thousands of them.

A path is one-hot, and hyperparameters are columns of the unit cube, some of them active. Candidates
are drawn, encoded, decoded, turned into features of a surrogate, and moved to neighbours that
differ in one thing. Only this module converts between users' values and models' vectors.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from ConfigSpace.conditions import Condition, Conjunction
from ConfigSpace.hyperparameters import (
    Constant,
    Hyperparameter,
    IntegerHyperparameter,
)
from numpy.random import Generator
from numpy.typing import NDArray

from prefect_tune.optimizers.converter import choices_of, plain_value
from prefect_tune.optimizers.space.configuration import (
    Choice,
    Configuration,
    active_hyperparameters,
    is_allowed,
)
from prefect_tune.optimizers.space.sampling import MOST_PATHS
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.unit_interval import (
    Array,
    Value,
    from_unit,
    integers_at,
    to_unit,
)

Column = tuple[str, str, str]
"""Step, algorithm and hyperparameter of a column of the unit cube."""


class Encoding:
    """Vectors for the configurations of one space.

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

    def one_hot(self, path: Path) -> Array:
        """Return a vector, shape (N,), with exactly one 1 per searched step."""
        vector = np.zeros(len(self.algorithms))
        for step, algorithm in zip(self.space.searched, path, strict=True):
            vector[self._place[step.name, algorithm]] = 1.0
        return vector

    def to_cube(self, configuration: Configuration) -> tuple[Array, NDArray[np.bool_]]:
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

    def from_cube(self, path: Path, positions: Array) -> Configuration:
        """Return the configuration of `path` with the values at `positions`, shape (d,)."""
        choices = []
        for step, algorithm_id in zip(self.space.searched, path, strict=True):
            algorithm = step.algorithm(algorithm_id)
            values: dict[str, Value] = {}
            for h in active_hyperparameters(algorithm.hyperparameters, values):
                column = self._position.get((step.name, algorithm_id, h.name))
                u = 0.5 if column is None else float(positions[column])
                values[h.name] = from_unit(h, u)
            choices.append((step.name, Choice.of(algorithm_id, values)))
        return Configuration(tuple(choices))


@dataclass(frozen=True, slots=True)
class Candidates:
    """n candidates.

    Algorithms are numbered within each searched step, shape (n, K). Units are positions in [0, 1]
    of all hyperparameters, active or not, shape (n, d).
    """

    algorithms: NDArray[np.intp]
    units: Array

    def __len__(self) -> int:
        return len(self.algorithms)

    def __getitem__(self, rows: Any) -> "Candidates":
        return Candidates(self.algorithms[rows], self.units[rows])

    def joined(self, *others: "Candidates") -> "Candidates":
        """Return these and other candidates, in order."""
        parts = (self, *others)
        return Candidates(
            np.concatenate([p.algorithms for p in parts]), np.concatenate([p.units for p in parts])
        )


@dataclass(frozen=True, slots=True)
class _Column:
    """One hyperparameter, as the arrays need it.

    `size` is the number of values of a category or an ordinal, else 0. `siblings` are the columns
    of all hyperparameters of its algorithm; None for a constant.
    """

    step: int
    algorithm: int
    size: int
    conditions: tuple[Condition | Conjunction, ...]
    parents: tuple[int, ...]
    siblings: tuple[int | None, ...]


class Columns:
    """All hyperparameters of a space, by column; `sizes` are numbers of discrete values, else 0."""

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
        for i, column in enumerate(self._columns):  # parents precede their children
            active[:, i] = candidates.algorithms[:, column.step] == column.algorithm
            rows = np.flatnonzero(active[:, i])
            if not column.conditions or not len(rows):
                continue
            active[rows, i] = active[rows][:, list(column.parents)].all(axis=1)
            vectors = self._vectors(column, candidates.units[rows])
            for condition in column.conditions:
                active[rows, i] &= condition.satisfied_by_vector_array(vectors)
        return active

    def snapped(self, units: Array) -> Array:
        """Return units with categories in the middle of their shares, as in `Encoding.to_cube`."""
        with_size = np.maximum(self.sizes, 1)
        middle = (np.minimum(np.floor(units * with_size), with_size - 1) + 0.5) / with_size
        return np.where(self.sizes > 0, middle, units)

    def _vectors(self, column: _Column, units: NDArray[Any]) -> NDArray[np.float64]:
        """Vectors that ConfigSpace's conditions read, a row per hyperparameter of the algorithm."""
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
                size=_n_listed(hyperparameters[name]),
                conditions=tuple(hyperparameters.parent_conditions_of[name]),
                parents=tuple(i for i in parents if i is not None),
                siblings=tuple(siblings.values()),
            )
        )
    return tuple(columns)


def _n_listed(hyperparameter: Hyperparameter[Any, Any]) -> int:
    return len(choices_of(hyperparameter) or ())


_INACTIVE = -1.0


class CandidateSpace:
    """Samples, encodes and decodes candidates of the `proposed` part of a space.

    The columns cover the full space. `allowed` has, by step, the positions of algorithms that
    may be proposed, and `default_units` the positions of the defaults, shape (d,).
    """

    def __init__(self, space: Space, proposed: Space | None = None) -> None:
        self.space, self.proposed = space, proposed or space
        self.encoding = Encoding(space)
        self._ids = [[a.id for a in s.algorithms] for s in space.searched]
        self.allowed = [
            np.array([ids.index(a.id) for a in s.algorithms])
            for ids, s in zip(self._ids, self.proposed.searched, strict=True)
        ]
        self._offsets = np.cumsum([0, *(len(ids) for ids in self._ids)])
        self.columns = Columns(space, self.encoding)
        self._is_proposed = [
            np.isin(np.arange(len(ids)), a) for ids, a in zip(self._ids, self.allowed, strict=True)
        ]
        self.default_units = np.array(
            [
                to_unit(h, h.default_value)
                for h in map(self.encoding.hyperparameter, self.encoding.columns)
            ]
        )
        self._rows: dict[Configuration, tuple[list[int], Array]] = {}
        self._position = {column: i for i, column in enumerate(self.encoding.columns)}
        self._values: list[dict[float, Value]] = [
            {float(unit): plain_value(self.encoding.hyperparameter(column).default_value)}
            for column, unit in zip(self.encoding.columns, self.default_units, strict=True)
        ]
        """Known values by column and position, because conversion back may lose digits."""
        self._feasible: dict[tuple[int, ...], bool] = {}
        self._settled: dict[tuple[int, ...], list[int]] = {}
        self._paths: NDArray[np.intp] | None = None
        # Of more paths, rows are drawn, and dropped if they cannot run.
        if self.proposed.n_paths <= MOST_PATHS and not space.has_ignored:
            self._paths = np.array([self._indices(path) for path in self.proposed.paths()])

    def sample(self, n: int, rng: Generator) -> Candidates:
        """Return up to n candidates, uniform over runnable paths, or by step if any is ignored."""
        if self._paths is not None:
            algorithms = self._paths[rng.integers(len(self._paths), size=n)]
        else:
            drawn = np.column_stack([rng.choice(a, size=n) for a in self.allowed])
            algorithms = self.settled(drawn)
            algorithms = algorithms[self.can_run(algorithms)]
        return Candidates(algorithms, rng.random((len(algorithms), len(self.columns))))

    def encode(self, configurations: Iterable[Configuration]) -> Candidates:
        """Return configurations as candidates, inactive hyperparameters at their defaults."""
        rows = [self._encoded(c) for c in configurations]
        algorithms = np.array([a for a, _ in rows], dtype=np.intp)
        units = np.array([u for _, u in rows], dtype=np.float64)
        shapes = (len(rows), len(self._ids)), (len(rows), len(self.columns))
        return Candidates(algorithms.reshape(shapes[0]), units.reshape(shapes[1]))

    def decode(self, candidates: Candidates, row: int) -> Configuration | None:
        """Return a row's configuration, exact to the last digit; None if values are forbidden."""
        path = tuple(self._ids[k][a] for k, a in enumerate(candidates.algorithms[row]))
        units = candidates.units[row]
        rough = self.encoding.from_cube(path, units)
        choices = [
            (step, Choice(choice.algorithm, tuple(self._exact(step, choice, units))))
            for step, choice in rough.choices
        ]
        configuration = Configuration(tuple(choices))
        return configuration if is_allowed(self.space, configuration) else None

    def _exact(self, step: str, choice: Choice, units: Array) -> Iterable[tuple[str, Value]]:
        """Yield the values of a choice, replaced by known values nearby."""
        for name, value in choice.values:
            i = self._position.get((step, choice.algorithm, name))
            if i is None or self.columns.sizes[i]:
                yield name, value
            else:
                yield name, self._values[i].get(float(units[i]), value)

    def features(self, candidates: Candidates) -> Array:
        """Return one-hot paths and positions, inactive ones -1, shape (n, N + d)."""
        n = len(candidates)
        one_hot = np.zeros((n, self._offsets[-1]))
        one_hot[np.arange(n)[:, None], candidates.algorithms + self._offsets[:-1]] = 1.0
        active = self.columns.active(candidates)
        positions = np.where(active, self.columns.snapped(candidates.units), _INACTIVE)
        return np.hstack([one_hot, positions])

    def may_be_proposed(self, candidates: Candidates) -> NDArray[np.bool_]:
        """Return which rows use only algorithms that may be proposed, shape (n,)."""
        columns = zip(self._is_proposed, candidates.algorithms.T, strict=True)
        return np.all([known[column] for known, column in columns], axis=0)

    def settled(self, algorithms: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the canonical paths nearest to paths combined step by step, shape (n, K)."""
        if not self.space.has_ignored or not len(algorithms):
            return algorithms
        rows = [tuple(int(a) for a in row) for row in algorithms]
        for row in set(rows) - self._settled.keys():
            path = tuple(self._ids[k][a] for k, a in enumerate(row))
            self._settled[row] = self._indices(self.proposed.settled(path))
        return np.array([self._settled[row] for row in rows], dtype=np.intp)

    def can_run(self, algorithms: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which paths, shape (n, K), can run, shape (n,)."""
        rows = [tuple(int(a) for a in row) for row in algorithms]
        for row in set(rows) - self._feasible.keys():
            path = tuple(self._ids[k][a] for k, a in enumerate(row))
            self._feasible[row] = self.space.is_feasible(path)
        return np.array([self._feasible[row] for row in rows], dtype=np.bool_)

    def _encoded(self, configuration: Configuration) -> tuple[list[int], Array]:
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


def neighbours(
    space: CandidateSpace, candidates: Candidates, n: int, rng: Generator, deviation: float = 0.2
) -> tuple[Candidates, NDArray[np.intp]]:
    """Return up to n neighbours of each candidate, and the row of each neighbour's origin.

    A neighbour differs in one thing, drawn uniformly from steps with a choice and active
    hyperparameters: another algorithm, another category, or a normal step of a number. If
    algorithms ignore steps, another algorithm may change ignored steps too.
    """
    origin = np.repeat(np.arange(len(candidates)), n)
    algorithms, units = candidates.algorithms[origin], candidates.units[origin]
    if not len(origin):
        return Candidates(algorithms, units), origin
    has_choice = np.array([len(allowed) > 1 for allowed in space.allowed])
    active = space.columns.active(candidates)[origin]
    changeable = np.hstack([np.tile(has_choice, (len(origin), 1)), active])
    changed = np.where(changeable, rng.random(changeable.shape), -1.0).argmax(axis=1)
    for k, allowed in enumerate(space.allowed):
        rows = np.flatnonzero(changed == k)
        drawn = rng.choice(allowed, size=len(rows))
        same = drawn == algorithms[rows, k]
        drawn[same] = allowed[(np.searchsorted(allowed, drawn[same]) + 1) % len(allowed)]
        algorithms[rows, k] = drawn
    rows = np.flatnonzero(changed >= len(has_choice))
    columns = changed[rows] - len(has_choice)
    sizes = space.columns.sizes[columns]
    units[rows, columns] = _moved(units[rows, columns], sizes, deviation, rng)
    if space.space.has_ignored:
        algorithms = space.settled(algorithms)
        is_same = (algorithms == candidates.algorithms[origin]).all(axis=1)
        is_same &= changed < len(has_choice)  # another choice of a step that is ignored
        algorithms, units, origin = algorithms[~is_same], units[~is_same], origin[~is_same]
    kept = space.can_run(algorithms)
    return Candidates(algorithms[kept], units[kept]), origin[kept]


def _moved(before: Array, sizes: NDArray[np.intp], deviation: float, rng: Generator) -> Array:
    moved = before + deviation * rng.standard_normal(before.shape)
    moved = 1 - np.abs(1 - np.abs(moved) % 2)  # reflected, to stay within the range
    others = np.maximum(sizes - 1, 1)
    away = 1 + np.minimum(np.floor(rng.random(before.shape) * others), others - 1)
    with_size = np.maximum(sizes, 1)
    redrawn = (np.floor(before * with_size) + away) % with_size
    return np.where(sizes > 0, (redrawn + 0.5) / with_size, moved)
