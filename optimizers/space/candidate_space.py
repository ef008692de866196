"""Candidates of one space: drawn, encoded, decoded, and as features of a surrogate."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.space.candidates import Candidates
from prefect_tune.optimizers.space.columns import Columns
from prefect_tune.optimizers.space.configuration import Choice, Configuration, is_allowed
from prefect_tune.optimizers.space.encoding import Encoding
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.unit_interval import Value, plain_value, to_unit

__all__ = ["CandidateSpace"]

_INACTIVE = -1.0
_MOST_PATHS = 20_000
"""More paths than this are not listed: rows are drawn, and those that cannot run dropped."""


class CandidateSpace:
    """Samples, encodes and decodes candidates of one space.

    Args:
        space: The full space; it gives the columns.
        proposed: The part of it that may be proposed, the full one by default.

    Attributes:
        encoding: Of the full space.
        columns: Its hyperparameters.
        allowed: By step, positions of the algorithms that may be proposed.
        default_units: Positions of the defaults, shape (d,).
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
        self._rows: dict[Configuration, tuple[list[int], NDArray[np.float64]]] = {}
        self._position = {column: i for i, column in enumerate(self.encoding.columns)}
        self._values: list[dict[float, Value]] = [
            {float(unit): plain_value(self.encoding.hyperparameter(column).default_value)}
            for column, unit in zip(self.encoding.columns, self.default_units, strict=True)
        ]
        """By column, the values whose positions are known: a way there and back may lose digits."""
        self._feasible: dict[tuple[int, ...], bool] = {}
        self._settled: dict[tuple[int, ...], list[int]] = {}
        self._paths: NDArray[np.intp] | None = None
        if self.proposed.n_paths <= _MOST_PATHS and not space.has_ignored:
            self._paths = np.array([self._indices(path) for path in self.proposed.paths()])

    def sample(self, n: int, rng: np.random.Generator) -> Candidates:
        """Return up to n candidates from the prior, uniform over the paths that can run.

        Where algorithms ignore steps, those of each step are drawn evenly before that counts.
        """
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
        """Return the configuration of a row; None when its values are forbidden together.

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
        """Yield the values of a choice, known ones in place of those near them."""
        for name, value in choice.values:
            i = self._position.get((step, choice.algorithm, name))
            if i is None or self.columns.sizes[i]:
                yield name, value
            else:
                yield name, self._values[i].get(float(units[i]), value)

    def features(self, candidates: Candidates) -> NDArray[np.float64]:
        """Return one-hot paths and positions, inactive ones -1, shape (n, N + d)."""
        n = len(candidates)
        one_hot = np.zeros((n, self._offsets[-1]))
        one_hot[np.arange(n)[:, None], candidates.algorithms + self._offsets[:-1]] = 1.0
        active = self.columns.active(candidates)
        positions = np.where(active, self.columns.snapped(candidates.units), _INACTIVE)
        return np.hstack([one_hot, positions])

    def may_be_proposed(self, candidates: Candidates) -> NDArray[np.bool_]:
        """Return which rows use only algorithms of the part that may be proposed, shape (n,)."""
        columns = zip(self._is_proposed, candidates.algorithms.T, strict=True)
        inside: NDArray[np.bool_] = np.all([known[column] for known, column in columns], axis=0)
        return inside

    def settled(self, algorithms: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the canonical paths nearest to paths put together step by step, shape (n, K)."""
        if not self.space.has_ignored or not len(algorithms):
            return algorithms
        rows = [tuple(int(a) for a in row) for row in algorithms]
        for row in set(rows) - self._settled.keys():
            path = tuple(self._ids[k][a] for k, a in enumerate(row))
            self._settled[row] = self._indices(self.proposed.settled(path))
        return np.array([self._settled[row] for row in rows], dtype=np.intp)

    def can_run(self, algorithms: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which paths can run, shape (n,), from their algorithms, shape (n, K)."""
        rows = [tuple(int(a) for a in row) for row in algorithms]
        for row in set(rows) - self._feasible.keys():
            path = tuple(self._ids[k][a] for k, a in enumerate(row))
            self._feasible[row] = self.space.is_feasible(path)
        return np.array([self._feasible[row] for row in rows], dtype=np.bool_)

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
