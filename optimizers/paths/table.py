"""The paths of a space by number, and the order of their first runs.

The order is a greedy optimal design over one-hot paths (FLASH, section 3.2).
"""

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from prefect_tune.optimizers.paths.shared_values import BestValues, SharedValues, most_alike
from prefect_tune.optimizers.space.configuration import Configuration, default_configuration
from prefect_tune.optimizers.space.sampling import listed_paths
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.vectors import Array, Encoding
from prefect_tune.optimizers.trials.trial import Trial

_TIE = 1e-9
"""Tolerance for equal gains."""
_EXHAUSTED = 1e-6
"""Gain below which only rounding is left: the chosen paths span all others."""


def design_order(
    paths: Array, n: int, rng: Generator | None = None, start: Sequence[int] = ()
) -> list[int]:
    """Return `n` paths in the order to run them, with repeats if fewer are useful.

    Candidates are one-hot, shape (B, N). The product of the leading eigenvalues of the sum of pp'
    is maximised, as in the paper. `rng` breaks ties; without it, the lowest index wins. `start` has
    the indices of the first paths; if it is empty, one is drawn.
    """
    first = list(start) or [int(rng.integers(len(paths))) if rng else 0]
    chosen = _independent(paths, first, n, rng)
    if len(chosen) == n:
        return chosen
    # Once the chosen paths span all others, the paper's product is 0 for every path. Later picks
    # maximise the determinant on the range of the sum.
    inverse: Array = np.linalg.pinv(paths[chosen].T @ paths[chosen], rcond=1e-10, hermitian=True)
    return _greedy(paths, chosen, inverse, n, rng)


def _independent(paths: Array, first: Sequence[int], n: int, rng: Generator | None) -> list[int]:
    """Extend the first paths by greedy D-optimal picks while they are independent.

    With S the picks and G = P_S P_S', adding path j multiplies det(G) by K - g_j'G^-1 g_j: the
    squared distance of j from the span of S, kept up to date by Gram-Schmidt.
    """
    distance = np.einsum("ij,ij->i", paths, paths)
    basis = np.empty((0, paths.shape[1]))
    chosen: list[int] = []
    while len(chosen) < n:
        pick = first[len(chosen)] if len(chosen) < len(first) else _pick(distance, rng)
        if distance[pick] < _EXHAUSTED:
            break
        chosen.append(pick)
        direction = paths[pick] - basis.T @ (basis @ paths[pick])
        direction -= basis.T @ (basis @ direction)  # repeating it once removes rounding errors
        direction /= np.linalg.norm(direction)
        basis = np.vstack([basis, direction])
        distance = distance - (paths @ direction) ** 2
    return chosen


def _greedy(
    paths: Array, chosen: list[int], inverse: Array, n: int, rng: Generator | None
) -> list[int]:
    """Continue with the path of largest p'A p, A <- A - (Ap)(Ap)'/(1 + p'Ap)."""
    chosen = list(chosen)
    while len(chosen) < n:
        leverage = np.einsum("ij,ij->i", paths @ inverse, paths)
        pick = _pick(leverage, rng)
        chosen.append(pick)
        direction = inverse @ paths[pick]
        inverse = inverse - np.outer(direction, direction) / (1 + leverage[pick])
    return chosen


def _pick(gains: Array, rng: Generator | None) -> int:
    best = np.flatnonzero(gains >= gains.max() - _TIE)
    return int(best[0] if rng is None else best[rng.integers(len(best))])


class PathTable:
    """Paths and their first runs with the values `best`; a fixed sample if too many to list."""

    def __init__(self, space: Space, seed: int, shared: SharedValues | None = None) -> None:
        self.space = space
        self.shared = shared if shared is not None and shared.width else None
        self.best: BestValues = self.shared.best() if self.shared else {}
        self._encoding = Encoding(space)
        self.paths = listed_paths(space, seed)
        self._number = {path: i for i, path in enumerate(self.paths)}
        self._of_trials: dict[int, Path] = {}
        self._defaults: dict[int, Configuration] = {}

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def rank(self) -> int:
        """Number of linearly independent paths: N - K + 1, or fewer if algorithms ignore steps."""
        if self.space.has_ignored:
            return int(np.linalg.matrix_rank(self.one_hot.T @ self.one_hot, hermitian=True))
        return self.one_hot.shape[1] - len(self.space.searched) + 1

    @cached_property
    def one_hot(self) -> Array:
        """One-hot paths, shape (B, N)."""
        return np.array([self._encoding.one_hot(path) for path in self.paths])

    def encoded(self, trials: Sequence[Trial]) -> Array:
        """Return one-hot paths of trials and their shared values, shape (n, N + S)."""
        paths = [self._path_of(t) for t in trials]
        return self._encoded(paths, (t.query.configuration for t in trials))

    def encoded_configurations(self, configurations: Sequence[Configuration]) -> Array:
        """Return one-hot paths of configurations and their shared values, shape (n, N + S)."""
        return self._encoded([c.path for c in configurations], configurations)

    def _encoded(self, paths: Sequence[Path], configurations: Iterable[Configuration]) -> Array:
        known = zip(paths, map(self._number.get, paths), strict=True)
        rows = [self._encoding.one_hot(p) if i is None else self.one_hot[i] for p, i in known]
        encoded = np.array(rows).reshape(-1, self.one_hot.shape[1])
        if self.shared is None:
            return encoded
        return np.hstack([encoded, self.shared.columns(configurations)])

    def encoded_first_runs(self) -> Array:
        """Return one-hot paths and the shared values of their first runs, shape (B, N + S)."""
        if self.shared is None:
            return self.one_hot
        firsts, group_of = self._groups
        of_groups = self.shared.columns(self.first_run(i) for i in firsts)
        return np.hstack([self.one_hot, of_groups[group_of]])

    def numbers_of(self, trials: Iterable[Trial]) -> list[int]:
        """Return the numbers of the trials' paths, skipping paths outside the table."""
        numbers = (self._number.get(self._path_of(t)) for t in trials)
        return [i for i in numbers if i is not None]

    def default(self, i: int) -> Configuration:
        """Return a path with default values."""
        if i not in self._defaults:
            self._defaults[i] = default_configuration(self.space, self.paths[i])
        return self._defaults[i]

    def first_run(self, i: int) -> Configuration:
        """Return a path with default values, except for the best shared values."""
        default = self.default(i)
        return default if self.shared is None else self.shared.applied(self.best, default)

    def without_first_run(self, trials: Iterable[Trial]) -> NDArray[np.bool_]:
        """Return the paths whose first run is not among the trials, shape (B,)."""
        is_new = np.ones(len(self), dtype=np.bool_)
        for trial in trials:
            for i in self.numbers_of([trial]):
                if trial.query.configuration == self.first_run(i):
                    is_new[i] = False
        return is_new

    @cached_property
    def plain(self) -> list[int]:
        """One path of each model with idle steps before it, or else the most similar path."""
        *before, model = self.space.searched
        plain = tuple(step.simplest.id for step in before)
        paths = [
            self.space.canonical_path((*plain, algorithm.id)) for algorithm in model.algorithms
        ]
        if self.space.has_ignored:
            paths = [
                path
                if path in self._number
                else most_alike(path, (p for p in self.paths if p[-1] == path[-1]))
                for path in paths
            ]
        return [i for i in map(self._number.get, paths) if i is not None]

    @cached_property
    def _groups(self) -> tuple[list[int], NDArray[np.intp]]:
        """One path of each group with equal shared values in first runs, and groups by path."""
        assert self.shared is not None  # noqa: S101 - callers check it
        firsts: dict[Hashable, int] = {}
        for i, path in enumerate(self.paths):
            firsts.setdefault(self.shared.group(path), i)
        place = {group: g for g, group in enumerate(firsts)}
        return list(firsts.values()), np.array([place[self.shared.group(p)] for p in self.paths])

    def _path_of(self, trial: Trial) -> Path:
        if trial.number not in self._of_trials:
            self._of_trials[trial.number] = trial.query.configuration.path
        return self._of_trials[trial.number]
