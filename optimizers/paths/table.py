"""The paths of a space by number, as FLASH's models see them."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import islice
from operator import eq

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.paths.design import design_rank
from prefect_tune.optimizers.paths.shared_steps import with_choices
from prefect_tune.optimizers.space.configuration import Choice, Configuration, default_configuration
from prefect_tune.optimizers.space.encoding import Encoding
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.trials.trial import Trial

__all__ = ["PathTable", "listed_paths"]

_MAX_PATHS = 20_000
"""Of more paths than this, so many are drawn once and searched."""


class PathTable:
    """Paths and their defaults, made once; a fixed random part where there are very many.

    Args:
        space: The space.
        seed: Draws that part.
        shared: By step, what takes the place of its default values.

    Attributes:
        paths: The B paths.
        one_hot: Shape (B, N).
    """

    def __init__(self, space: Space, seed: int, shared: Mapping[str, Choice]) -> None:
        self.space = space
        self._shared = shared
        self._encoding = Encoding(space)
        self.paths = listed_paths(space, seed)
        self._number = {path: i for i, path in enumerate(self.paths)}
        self._of_trials: dict[int, Path] = {}
        self._defaults: dict[int, Configuration] = {}

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def rank(self) -> int:
        """How many paths of the full product are linearly independent (N - K + 1).

        Of those in the table, where algorithms ignore steps: what nothing else may choose does not
        vary by itself.
        """
        if self.space.has_ignored:
            return int(np.linalg.matrix_rank(self.one_hot.T @ self.one_hot, hermitian=True))
        return design_rank(self.one_hot.shape[1], len(self.space.searched))

    @cached_property
    def one_hot(self) -> NDArray[np.float64]:
        """One-hot paths, shape (B, N)."""
        return np.array([self._encoding.one_hot(path) for path in self.paths])

    def encoded(self, trials: Iterable[Trial]) -> NDArray[np.float64]:
        """Return one-hot paths of trials, shape (n, N)."""
        paths = [self._path_of(t) for t in trials]
        known = zip(paths, map(self._number.get, paths), strict=True)
        rows = [self._encoding.one_hot(p) if i is None else self.one_hot[i] for p, i in known]
        return np.array(rows).reshape(-1, self.one_hot.shape[1])

    def numbers_of(self, trials: Iterable[Trial]) -> list[int]:
        """Return the numbers of the paths of trials, those in the table only."""
        numbers = (self._number.get(self._path_of(t)) for t in trials)
        return [i for i in numbers if i is not None]

    def default(self, i: int) -> Configuration:
        """Return a path with default values, but for what is shared."""
        if i not in self._defaults:
            configuration = default_configuration(self.space, self.paths[i])
            self._defaults[i] = with_choices(configuration, self._shared)
        return self._defaults[i]

    def without_default_run(self, trials: Iterable[Trial]) -> NDArray[np.bool_]:
        """Return paths that none of the trials ran with default values, shape (B,)."""
        is_new = np.ones(len(self), dtype=np.bool_)
        for trial in trials:
            for i in self.numbers_of([trial]):
                if trial.query.configuration == self.default(i):
                    is_new[i] = False
        return is_new

    @cached_property
    def plain(self) -> list[int]:
        """One path of each model, with nothing before it as far as the steps allow.

        Where algorithms ignore steps, a model whose plain path cannot run has the one most like it.
        """
        *before, model = self.space.searched
        plain = tuple(step.plainest.id for step in before)
        paths = [self.space.settled((*plain, algorithm.id)) for algorithm in model.algorithms]
        if self.space.has_ignored:
            paths = [path if path in self._number else self._most_alike(path) for path in paths]
        return [i for i in map(self._number.get, paths) if i is not None]

    def _most_alike(self, path: Path) -> Path:
        """Return the path of the same model with the most algorithms of this one, if there is any.

        The first one of several.
        """
        same = [p for p in self.paths if p[-1] == path[-1]]
        return max(same, key=lambda p: sum(map(eq, p, path)), default=path)

    def _path_of(self, trial: Trial) -> Path:
        if trial.number not in self._of_trials:
            self._of_trials[trial.number] = trial.query.configuration.path
        return self._of_trials[trial.number]


def listed_paths(space: Space, seed: int) -> list[Path]:
    """Return all paths that can run; where there are very many, a random part of them, sorted."""
    paths = list(islice(space.paths(), _MAX_PATHS + 1))
    if len(paths) <= _MAX_PATHS:
        return paths
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, 0)))
    return sorted({sample_configuration(space, rng).path for _ in range(_MAX_PATHS)})
