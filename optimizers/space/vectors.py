"""Configurations as vectors, for models that score thousands of configurations at once.

A path is a one-hot vector. Hyperparameters are columns of the unit cube, and a configuration uses
only the active columns. Candidates can be drawn, encoded, decoded, converted to the features of a
model, and moved to neighbors that differ in one choice or value. Only this module converts between
users' values and models' vectors.

Discrete values are points of a grid on the unit interval. The rounding cell of a point extends
halfway to its neighbors. A position on a border belongs to the upper cell (round half up).
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from ConfigSpace.hyperparameters import (
    CategoricalHyperparameter,
    Constant,
    Hyperparameter,
    IntegerHyperparameter,
    OrdinalHyperparameter,
)
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from prefect_tune.optimizers.documents import choices_of, plain_value, value_document
from prefect_tune.optimizers.space.configuration import (
    Choice,
    Configuration,
    Value,
    active_hyperparameters,
    is_allowed,
)
from prefect_tune.optimizers.space.space import Path, Space

Array = NDArray[np.floating[Any]]
Column = tuple[str, str, str]
"""Name of a column of the unit cube: step, algorithm and hyperparameter."""
TIE = 1e-9
"""Difference below which numbers on a scale without unit count as equal."""
ROUNDING = 1e-12
"""Relative rounding error of a sum, or of a variance that is a difference."""
N_NEIGHBORS = 30
"""Number of neighbors of a candidate in a local search."""
MOST_LISTED = 20_000
"""Largest number of paths, configurations or integer values that are listed."""


def from_unit(hyperparameter: Hyperparameter[Any, Any], u: float) -> Value:
    """Return the value at position `u` in [0, 1]; discrete values occupy equal parts."""
    if (choices := choices_of(hyperparameter)) is not None:
        return plain_value(choices[min(int(u * len(choices)), len(choices) - 1)])
    if isinstance(hyperparameter, IntegerHyperparameter):
        return int(integers_at(hyperparameter, u))
    return plain_value(hyperparameter.to_value(min(max(u, 0.0), 1.0)))


def to_unit(hyperparameter: Hyperparameter[Any, Any], value: Value) -> float:
    """Return the position of `value` in [0, 1]; for a discrete value, the middle of its part."""
    if (choices := choices_of(hyperparameter)) is None:
        if isinstance(hyperparameter, IntegerHyperparameter):
            return float(position_on_scale(hyperparameter, value))
        return float(hyperparameter.to_vector(value))
    try:
        place = choices.index(value)
    except ValueError:  # an object from another process, or a value that does not equal itself
        place = [*map(value_document, choices)].index(value_document(value))
    return (place + 0.5) / len(choices)


def integers_at(hyperparameter: IntegerHyperparameter, units: ArrayLike) -> NDArray[np.int64]:
    """Return the integers at positions in [0, 1], in the shape of `units`.

    The unit interval covers the range plus half a step at each end, so that all values, including
    the first and last, occupy equal parts.
    """
    lower, upper = _ends(hyperparameter)
    scaled = lower + np.asarray(units, dtype=np.float64) * (upper - lower)
    rounded = np.floor((np.exp(scaled) if hyperparameter.log else scaled) + 0.5)
    return np.clip(rounded, hyperparameter.lower, hyperparameter.upper).astype(np.int64)


def position_on_scale(hyperparameter: IntegerHyperparameter, numbers: Any) -> Array:
    """Return the positions in [0, 1] of real numbers in an integer hyperparameter's range."""
    lower, upper = _ends(hyperparameter)
    numbers = np.asarray(numbers, dtype=np.float64)
    return ((np.log(numbers) if hyperparameter.log else numbers) - lower) / (upper - lower)


def _ends(hyperparameter: IntegerHyperparameter) -> tuple[float, float]:
    lower, upper = hyperparameter.lower - 0.5, hyperparameter.upper + 0.5
    return (float(np.log(lower)), float(np.log(upper))) if hyperparameter.log else (lower, upper)


@dataclass(frozen=True, slots=True)
class Grid:
    """The values of one discrete hyperparameter.

    Attributes:
        units: Increasing positions of the L values given by `to_unit`, shape (L,).
        borders: Positions at which `from_unit` moves to the next value, shape (L - 1,).
        positions: Positions of the values in models, from 0 to 1, shape (L,).
        is_ordered: Whether neighboring values are similar, which is false for three or more
            categories.
    """

    units: Array
    borders: Array
    positions: Array
    is_ordered: bool = True

    def index(self, units: ArrayLike) -> NDArray[np.intp]:
        """Return the index of the value at each unit."""
        return np.searchsorted(self.borders, np.asarray(units), side="right")

    def projected(self, position: float) -> int:
        """Return the index of the value nearest to a position, rounding half up."""
        borders = (self.positions[1:] + self.positions[:-1]) / 2
        inside = np.clip(position, 0.0, 1.0) + TIE / 1_000
        return int(np.searchsorted(borders, inside, side="right"))

    def nearest_in_cells(self, target: float) -> Array:
        """Return the point nearest to the target in each value's rounding cell, shape (L,)."""
        borders = (self.positions[1:] + self.positions[:-1]) / 2
        lower = np.concatenate([[0.0], borders + TIE])
        upper = np.concatenate([borders - TIE, [1.0]])
        return np.clip(target, lower, upper)


def grid_of(hyperparameter: Hyperparameter[Any, Any], *, is_coded: bool = False) -> Grid | None:
    """Return the grid of a hyperparameter; None if it is continuous or has too many values.

    If `is_coded`, integers are not on a logarithmic scale, and categories count as the integers
    from 0 to k - 1.
    """
    if isinstance(hyperparameter, IntegerHyperparameter):
        if hyperparameter.upper - hyperparameter.lower >= MOST_LISTED:
            return None
        values = np.arange(hyperparameter.lower, hyperparameter.upper + 1)
        units = position_on_scale(hyperparameter, values)
        borders = position_on_scale(hyperparameter, values[:-1] + 0.5)
        positions = np.asarray(hyperparameter.to_vector(values), dtype=np.float64)
        return Grid(units, borders, np.linspace(0, 1, len(units)) if is_coded else positions)
    if not isinstance(hyperparameter, CategoricalHyperparameter | OrdinalHyperparameter):
        return None
    n = len(choices_of(hyperparameter) or ())
    is_ordered = is_coded or n < 3 or isinstance(hyperparameter, OrdinalHyperparameter)
    positions = np.arange(n) / max(n - 1, 1)
    return Grid((np.arange(n) + 0.5) / n, np.arange(1, n) / n, positions, is_ordered)


class Encoding:
    """Encoder of the configurations of one space.

    Attributes:
        space: Space of the configurations.
        algorithms: Pair (step, algorithm) for each of the N columns of a one-hot path.
        columns: Triple (step, algorithm, hyperparameter) for each of the d columns of the cube.
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
        """Return the hyperparameter of a column of the unit cube."""
        return self._hyperparameters[column]

    def one_hot(self, path: Path) -> Array:
        """Return the one-hot vector of a path, shape (N,), with one 1 per searched step."""
        vector = np.zeros(len(self.algorithms))
        for step, algorithm in zip(self.space.searched, path, strict=True):
            vector[self._place[step.name, algorithm]] = 1.0
        return vector

    def to_cube(self, configuration: Configuration) -> tuple[Array, NDArray[np.bool_]]:
        """Return positions in [0, 1] and a mask of active columns, shape (d,) each.

        The position of an inactive column is 0.5.
        """
        positions = np.full(len(self.columns), 0.5)
        active = np.zeros(len(self.columns), dtype=np.bool_)
        for step, choice in configuration.choices:
            for name, value in choice.values:
                column = step, choice.algorithm, name
                if (i := self._position.get(column)) is not None:
                    positions[i] = to_unit(self._hyperparameters[column], value)
                    active[i] = True
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
                values[h.name] = self._value(h, column, u)
            choices.append((step.name, Choice.of(algorithm_id, values)))
        return Configuration(tuple(choices))

    def _value(self, h: Hyperparameter[Any, Any], column: int | None, u: float) -> Value:  # noqa: ARG002
        return from_unit(h, u)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The vectors of n candidates.

    Attributes:
        algorithms: Algorithm number in each of the K searched steps, shape (n, K).
        units: Positions in [0, 1] of all hyperparameters, active or inactive, shape (n, d).
    """

    algorithms: NDArray[np.intp]
    units: Array

    def __len__(self) -> int:
        return len(self.algorithms)

    def __getitem__(self, rows: Any) -> "Candidates":
        return Candidates(self.algorithms[rows], self.units[rows])

    def joined(self, *others: "Candidates") -> "Candidates":
        """Return these candidates followed by others."""
        parts = (self, *others)
        return Candidates(
            np.concatenate([p.algorithms for p in parts]), np.concatenate([p.units for p in parts])
        )


class CandidateSpace(Encoding):
    """Draws, encodes and decodes candidates of a space.

    Candidates are drawn from `proposed`, a part of the space. Columns cover the whole space.

    Attributes:
        proposed: Part of the space from which candidates are drawn.
        allowed: Numbers of the algorithms that may be proposed, by step.
        step: Searched-step number of each column, shape (d,).
        sizes: Number of values of a categorical or ordinal column, 0 for other columns, shape (d,).
        default_units: Positions of the default values, shape (d,).
    """

    def __init__(self, space: Space, proposed: Space | None = None) -> None:
        super().__init__(space)
        self.proposed = proposed or space
        self._ids = [[a.id for a in s.algorithms] for s in space.searched]
        self.allowed = [
            np.array([ids.index(a.id) for a in s.algorithms])
            for ids, s in zip(self._ids, self.proposed.searched, strict=True)
        ]
        self._offsets = np.cumsum([0, *(len(ids) for ids in self._ids)])
        names = [s.name for s in space.searched]
        self.step = np.array([names.index(step) for step, _, _ in self.columns], dtype=np.intp)
        self._algorithm = np.array(
            [self._ids[k].index(c[1]) for k, c in zip(self.step, self.columns, strict=True)],
            dtype=np.intp,
        )
        all_hyperparameters = list(self._hyperparameters.values())
        self.sizes = np.array([len(choices_of(h) or ()) for h in all_hyperparameters], np.intp)
        self.default_units = np.array([to_unit(h, h.default_value) for h in all_hyperparameters])
        spaces = [space.step(step).algorithm(a).hyperparameters for step, a, _ in self.columns]
        self._conditional = [
            (i, hyperparameters)
            for i, hyperparameters in enumerate(spaces)
            if hyperparameters.parent_conditions_of[self.columns[i][2]]
        ]
        self._rows: dict[Configuration, tuple[list[int], Array]] = {}
        self._values: list[dict[float, Value]] = [
            {float(unit): plain_value(h.default_value)}
            for h, unit in zip(all_hyperparameters, self.default_units, strict=True)
        ]
        """Known values by column and position, because a conversion from positions loses digits."""
        self._is_feasible = cache(lambda row: space.is_feasible(self._path(row)))
        self._canonical = cache(
            lambda row: self._indices(self.proposed.canonical_path(self._path(row)))
        )
        self._paths: NDArray[np.intp] | None = None
        # If the space has too many paths to list, paths are drawn, and those unable to run are
        # dropped.
        if self.proposed.n_paths <= MOST_LISTED and not space.has_ignored:
            self._paths = np.array([self._indices(path) for path in self.proposed.paths()])

    def active(self, candidates: Candidates) -> NDArray[np.bool_]:
        """Return whether each hyperparameter is active in each candidate, shape (n, d)."""
        active = candidates.algorithms[:, self.step] == self._algorithm
        for i, hyperparameters in self._conditional:  # parents precede their children
            step, algorithm, name = self.columns[i]
            rows = np.flatnonzero(active[:, i])
            if not len(rows):
                continue
            # ConfigSpace's conditions need one row per hyperparameter of the algorithm.
            vectors = np.zeros((len(hyperparameters), len(rows)))
            for place, h in enumerate(hyperparameters.values()):
                if (j := self._position.get((step, algorithm, h.name))) is None:
                    continue
                units = candidates.units[rows, j]
                if self.sizes[j]:
                    vectors[place] = np.minimum(np.floor(units * self.sizes[j]), self.sizes[j] - 1)
                elif isinstance(h, IntegerHyperparameter):
                    vectors[place] = h.to_vector(integers_at(h, units))
                else:
                    vectors[place] = h.to_vector(h.to_value(units))
            for parent in hyperparameters.parents_of[name]:
                if (j := self._position.get((step, algorithm, parent.name))) is not None:
                    active[rows, i] &= active[rows, j]
            for condition in hyperparameters.parent_conditions_of[name]:
                active[rows, i] &= condition.satisfied_by_vector_array(vectors)
        return active

    def snapped(self, units: Array) -> Array:
        """Return units with categories moved to the middle of their parts, as in `to_cube`."""
        with_size = np.maximum(self.sizes, 1)
        middle = (np.minimum(np.floor(units * with_size), with_size - 1) + 0.5) / with_size
        return np.where(self.sizes > 0, middle, units)

    def sample(self, n: int, rng: Generator) -> Candidates:
        """Return up to n candidates drawn from the prior.

        Paths are drawn uniformly. If algorithms ignore steps, or the space has too many paths, the
        algorithm of each step is drawn uniformly instead.
        """
        if self._paths is not None:
            algorithms = self._paths[rng.integers(len(self._paths), size=n)]
        else:
            drawn = np.column_stack([rng.choice(a, size=n) for a in self.allowed])
            algorithms = self.canonical_paths(drawn)
            algorithms = algorithms[self.can_run(algorithms)]
        return Candidates(algorithms, rng.random((len(algorithms), len(self.columns))))

    def encode(self, configurations: Iterable[Configuration]) -> Candidates:
        """Return configurations as candidates. Inactive hyperparameters get default values."""
        rows = []
        for configuration in configurations:
            if configuration not in self._rows:
                units, is_active = self.to_cube(configuration)
                units = np.where(is_active, units, self.default_units)
                self._rows[configuration] = self._indices(configuration.path), units
                for step, choice in configuration.choices:
                    for name, value in choice.values:
                        i = self._position.get((step, choice.algorithm, name))
                        if i is not None:
                            self._values[i][float(units[i])] = value
            rows.append(self._rows[configuration])
        algorithms = np.array([a for a, _ in rows], dtype=np.intp)
        units = np.array([u for _, u in rows], dtype=np.float64)
        n, d = len(rows), len(self.columns)
        return Candidates(algorithms.reshape(n, len(self._ids)), units.reshape(n, d))

    def decode(self, candidates: Candidates, row: int) -> Configuration | None:
        """Return the configuration of a row; None if the values are forbidden.

        Configurations encoded earlier are recovered exactly.
        """
        path = self._path(candidates.algorithms[row])
        configuration = self.from_cube(path, candidates.units[row])
        return configuration if is_allowed(self.space, configuration) else None

    def new_configurations(
        self, ranked: Candidates, asked: AbstractSet[Configuration]
    ) -> Iterator[Configuration]:
        """Yield, in order, the candidates' configurations that are allowed and not in `asked`."""
        decoded = (self.decode(ranked, row) for row in range(len(ranked)))
        return (c for c in decoded if c is not None and c not in asked)

    def _value(self, h: Hyperparameter[Any, Any], column: int | None, u: float) -> Value:
        value = super()._value(h, column, u)
        if column is None or self.sizes[column]:
            return value
        return self._values[column].get(u, value)

    def features(self, candidates: Candidates) -> Array:
        """Return one-hot paths and positions, shape (n, N + d). Inactive positions are -1."""
        n = len(candidates)
        one_hot = np.zeros((n, self._offsets[-1]))
        one_hot[np.arange(n)[:, None], candidates.algorithms + self._offsets[:-1]] = 1.0
        active = self.active(candidates)
        return np.hstack([one_hot, np.where(active, self.snapped(candidates.units), -1.0)])

    def may_be_proposed(self, candidates: Candidates) -> NDArray[np.bool_]:
        """Return whether all algorithms of each candidate may be proposed, shape (n,)."""
        columns = zip(candidates.algorithms.T, self.allowed, strict=True)
        return np.all([np.isin(column, allowed) for column, allowed in columns], axis=0)

    def canonical_paths(self, algorithms: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the canonical forms of paths drawn step by step, shape (n, K)."""
        if not self.space.has_ignored or not len(algorithms):
            return algorithms
        return np.array([self._canonical(tuple(row)) for row in algorithms.tolist()], dtype=np.intp)

    def can_run(self, algorithms: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return whether each path in `algorithms`, shape (n, K), can run."""
        return np.array([self._is_feasible(tuple(row)) for row in algorithms.tolist()], np.bool_)

    def _path(self, row: Sequence[int]) -> Path:
        return tuple(ids[a] for ids, a in zip(self._ids, row, strict=True))

    def _indices(self, path: Path) -> list[int]:
        return [ids.index(a) for ids, a in zip(self._ids, path, strict=True)]


def neighbors(
    space: CandidateSpace, candidates: Candidates, n: int, rng: Generator, deviation: float = 0.2
) -> tuple[Candidates, NDArray[np.intp]]:
    """Return up to n neighbors of each candidate, and the row of each neighbor's origin.

    A neighbor has another algorithm in one step, or another category or number (after a normal
    step) in one active hyperparameter. The step or hyperparameter is drawn uniformly. A new
    algorithm may also change the choices of steps that it ignores.
    """
    origin = np.repeat(np.arange(len(candidates)), n)
    algorithms, units = candidates.algorithms[origin], candidates.units[origin]
    if not len(origin):
        return Candidates(algorithms, units), origin
    has_choice = np.array([len(allowed) > 1 for allowed in space.allowed])
    active = space.active(candidates)[origin]
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
    before, sizes = units[rows, columns], space.sizes[columns]
    stepped = reflected(before + deviation * rng.standard_normal(before.shape))
    others = np.maximum(sizes - 1, 1)
    away = 1 + np.minimum(np.floor(rng.random(before.shape) * others), others - 1)
    with_size = np.maximum(sizes, 1)
    redrawn = (np.floor(before * with_size) + away) % with_size
    units[rows, columns] = np.where(sizes > 0, (redrawn + 0.5) / with_size, stepped)
    if space.space.has_ignored:
        algorithms = space.canonical_paths(algorithms)
        is_same = (algorithms == candidates.algorithms[origin]).all(axis=1)
        is_same &= changed < len(has_choice)  # only the choice of an ignored step differs
        algorithms, units, origin = algorithms[~is_same], units[~is_same], origin[~is_same]
    kept = space.can_run(algorithms)
    return Candidates(algorithms[kept], units[kept]), origin[kept]


def reflected(units: Array) -> Array:
    """Return `units` with values outside [0, 1] reflected at the border."""
    return 1 - np.abs(1 - np.abs(units) % 2)
