"""FLASH's numbered paths, and the design that orders their first runs (section 3.2)."""

from collections.abc import Hashable, Iterable
from functools import cached_property

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from prefect_tune.optimizers.methods.flash.shared_values import BestValues, SharedValues
from prefect_tune.optimizers.space.configuration import Configuration, default_configuration
from prefect_tune.optimizers.space.sampling import listed_paths
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.vectors import TIE, Array, Candidates, CandidateSpace
from prefect_tune.optimizers.trials.trial import Trial


def design_order(
    paths: Array, n: int, rng: Generator | None = None, start: int | None = None
) -> list[int]:
    """Return the indices of `n` paths in running order. Paths may be repeated.

    As in the paper, the design maximizes the product of the leading eigenvalues of the sum of pp'.

    Args:
        paths: One-hot paths, shape (B, N).
        n: Number of paths in the design.
        rng: Generator that breaks ties; None to choose the lowest index.
        start: Index of the first path; None to draw the first path.
    """
    if start is None:
        start = int(rng.integers(len(paths))) if rng else 0
    chosen = _independent(paths, start, n, rng)
    # Once the chosen paths span all other paths, the paper's product is 0 for every path. Later
    # picks maximize the determinant on the range of the sum: p'A p, A <- A - (Ap)(Ap)'/(1 + p'Ap).
    inverse: Array = np.linalg.pinv(paths[chosen].T @ paths[chosen], rcond=1e-10, hermitian=True)
    while len(chosen) < n:
        leverage = np.einsum("ij,ij->i", paths @ inverse, paths)
        pick = _pick(leverage, rng)
        chosen.append(pick)
        direction = inverse @ paths[pick]
        inverse = inverse - np.outer(direction, direction) / (1 + leverage[pick])
    return chosen


def _independent(paths: Array, start: int, n: int, rng: Generator | None) -> list[int]:
    """Return the first path and greedy D-optimal picks, for as long as all are independent.

    Let S be the picks and G = P_S P_S'. Adding path j multiplies det(G) by K - g_j'G^-1 g_j, which
    is the squared distance of j from the span of S. Gram-Schmidt orthogonalization keeps the
    distances up to date.
    """
    distance = np.einsum("ij,ij->i", paths, paths)
    basis = np.empty((0, paths.shape[1]))
    chosen: list[int] = []
    while len(chosen) < n:
        pick = _pick(distance, rng) if chosen else start
        if distance[pick] < TIE:  # the path lies in the span of the chosen paths
            break
        chosen.append(pick)
        direction = paths[pick] - basis.T @ (basis @ paths[pick])
        direction -= basis.T @ (basis @ direction)  # repeated to remove rounding errors
        direction /= np.linalg.norm(direction)
        basis = np.vstack([basis, direction])
        distance = distance - (paths @ direction) ** 2
    return chosen


def _pick(gains: Array, rng: Generator | None) -> int:
    best = np.flatnonzero(gains >= gains.max() - TIE)
    return int(best[0] if rng is None else best[rng.integers(len(best))])


class PathTable:
    """The paths of a space (a fixed sample if there are too many), and the first run of each path.

    Attributes:
        candidates: Encoder of the space's configurations.
        shared: Shared values of the space; None if the space has none.
        best: Best shared values, used in first runs.
        paths: The B paths of the table.
        one_hot: One-hot paths, shape (B, N).
    """

    def __init__(self, space: Space, seed: int, shared: SharedValues | None = None) -> None:
        self.space, self.candidates = space, CandidateSpace(space)
        self.shared = shared if shared is not None and shared.width else None
        self.best: BestValues = self.shared.best() if self.shared else {}
        self.paths = listed_paths(space, seed)
        self.one_hot = np.array([self.candidates.one_hot(path) for path in self.paths])
        self._number = {path: i for i, path in enumerate(self.paths)}
        sizes = [len(step.algorithms) for step in space.searched]
        columns = np.nonzero(self.one_hot)[1].reshape(len(self.paths), -1)
        self._algorithms = columns - np.cumsum([0, *sizes[:-1]])
        self._defaults: dict[int, Configuration] = {}
        self._first_runs: tuple[BestValues, Candidates, Array] | None = None

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def rank(self) -> int:
        """Number of linearly independent paths (N - K + 1, or fewer if algorithms ignore steps)."""
        if self.space.has_ignored:
            return int(np.linalg.matrix_rank(self.one_hot.T @ self.one_hot, hermitian=True))
        return self.one_hot.shape[1] - len(self.space.searched) + 1

    def encoded(self, configurations: Iterable[Configuration]) -> Array:
        """Return the one-hot paths and shared values of configurations, shape (n, N + S)."""
        known = list(configurations)
        rows = [self.candidates.one_hot(c.path) for c in known]
        encoded = np.array(rows).reshape(-1, self.one_hot.shape[1])
        if self.shared is None:
            return encoded
        return np.hstack([encoded, self.shared.columns(known)])

    def encoded_first_runs(self) -> Array:
        """Return the one-hot paths and the shared values of first runs, shape (B, N + S)."""
        if self.shared is None:
            return self.one_hot
        firsts, group_of = self._groups
        of_groups = self.shared.columns(map(self.first_run, firsts))
        return np.hstack([self.one_hot, of_groups[group_of]])

    def first_runs(self) -> tuple[Candidates, Array]:
        """Return the first runs of all paths, as candidates with their features."""
        if self._first_runs is None or self._first_runs[0] != self.best:
            firsts, group_of = self._groups
            # Values that are not shared keep their defaults.
            units = self.candidates.encode(map(self.first_run, firsts)).units[group_of]
            runs = Candidates(self._algorithms, units)
            self._first_runs = self.best, runs, self.candidates.features(runs)
        return self._first_runs[1:]

    def numbers_of(self, trials: Iterable[Trial]) -> list[int]:
        """Return the numbers of the trials' paths. Paths outside the table are skipped."""
        numbers = (self._number.get(trial.query.configuration.path) for trial in trials)
        return [i for i in numbers if i is not None]

    def default(self, i: int) -> Configuration:
        """Return the configuration of path i with default values."""
        if i not in self._defaults:
            self._defaults[i] = default_configuration(self.space, self.paths[i])
        return self._defaults[i]

    def first_run(self, i: int) -> Configuration:
        """Return the first run of path i: default values, and the best shared values."""
        default = self.default(i)
        return default if self.shared is None else self.shared.applied(self.best, default)

    @cached_property
    def _groups(self) -> tuple[list[int], NDArray[np.intp]]:
        """The index of one path from each group, and the group of each path.

        The first runs of all paths in a group have the same shared values.
        """
        groups = [self.shared.group(path) if self.shared else None for path in self.paths]
        firsts: dict[Hashable, int] = {}
        for i, group in enumerate(groups):
            firsts.setdefault(group, i)
        place = {group: g for g, group in enumerate(firsts)}
        return list(firsts.values()), np.array([place[group] for group in groups])
