"""Planted losses over any space, the catalogue's for instance: what a tuner meets, at no cost.

A loss is in percent. Each algorithm has a weight, each pair of algorithms of two steps a smaller
one, and each algorithm's hyperparameters a bowl, a few of them steep and most of them flat, in
which pairs of neighbours depend on each other. Losses saturate, folds differ a little, and some
pairs of algorithms fail.
"""

from collections.abc import Sequence
from zlib import crc32

import numpy as np

from prefect_tune.optimizers import Encoding, Query, Space

__all__ = ["PlantedLoss"]

_BEST = 5.0
_NOISE = 0.2
_FAILING = 0.03


class PlantedLoss:
    """One draw of weights and bowls; deterministic afterwards.

    Args:
        space: The space.
        world: Number of the draw.
    """

    def __init__(self, space: Space, world: int) -> None:
        self._encoding = Encoding(space)
        self._world = world
        rng = np.random.default_rng([world, crc32(space.name.encode())])
        self._steps = [s.name for s in space.searched]
        self._weights = {
            (s.name, a.id): float(rng.exponential(8 if s is space.searched[-1] else 3))
            for s in space.searched
            for a in s.algorithms
        }
        self._pairs: dict[tuple[str, str], float] = {}
        self._failing: set[tuple[str, str]] = set()
        for i, step in enumerate(space.searched):
            for other in space.searched[:i]:
                for a in step.algorithms:
                    for b in other.algorithms:
                        pair = f"{step.name}/{a.id}", f"{other.name}/{b.id}"
                        self._pairs[pair] = float(rng.exponential(2))
                        if rng.random() < _FAILING:
                            self._failing.add(pair)
        d = len(self._encoding.columns)
        self._best = rng.uniform(0.1, 0.9, d)
        self._steep = rng.exponential(1.0, d) ** 2 * 10
        self._tilt = rng.uniform(-0.8, 0.8, d)

    def __call__(self, query: Query) -> float | None:
        """Return the loss; None where the pipeline fails."""
        configuration = query.configuration
        total = 0.0
        choices = [f"{step}/{c.algorithm}" for step, c in configuration.choices]
        for i, one in enumerate(choices):
            for other in choices[:i]:
                if (one, other) in self._failing:
                    return None
                total += self._pairs[one, other]
        total += sum(self._weights[step, c.algorithm] for step, c in configuration.choices)
        units, active = self._encoding.to_cube(configuration)
        for step, choice in configuration.choices:
            mine = [
                i
                for i, column in enumerate(self._encoding.columns)
                if column[:2] == (step, choice.algorithm) and active[i]
            ]
            total += self._bowl(units, mine)
        noise = np.random.default_rng([self._world, crc32(configuration.canonical.encode())])
        return _BEST + 45 * (1 - np.exp(-total / 30)) + _NOISE * abs(noise.standard_normal())

    def _bowl(self, units: np.ndarray, columns: Sequence[int]) -> float:
        """The loss of an algorithm's hyperparameters, of which neighbours depend on each other."""
        if not columns:
            return 0.0
        away = units[columns] - self._best[columns]
        tilted = away + self._tilt[columns] * np.roll(away, 1) * (len(columns) > 1)
        return float(20 * (1 - np.exp(-(self._steep[columns] * tilted**2).sum() / 10)))
