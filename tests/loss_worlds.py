"""Losses that are known: the objective of the ADMM paper, and planted ones over any space.

The artificial objective of ADMM's appendix 15, on spaces of the shapes of its tables A3 and A2.

Algorithm j of step i has fixed weights w and a fixed seed; with theta the values of its
hyperparameters, v = |w . theta / sum theta|, and the loss after step i is the largest |x| of ten
draws x ~ N(loss before, v) of that seed. Not stated there and settled here: numbers lie in [1, 10],
and an algorithm without hyperparameters has v = |w_0|.

Planted losses over any space, the catalogue's for instance: what a tuner meets, at no cost.

A loss is in percent. Each algorithm has a weight, each pair of algorithms of two steps a smaller
one, and each algorithm's hyperparameters a bowl, a few of them steep and most of them flat, in
which pairs of neighbours depend on each other. Losses saturate, folds differ a little, and some
pairs of algorithms fail.
"""

from collections.abc import Sequence
from zlib import crc32

import numpy as np
from ConfigSpace import Float, Integer
from worlds import algorithm

from prefect_tune.optimizers import Algorithm, Encoding, Query, Space, Step

Shape = tuple[tuple[tuple[int, int], ...], ...]
"""By step and algorithm, how many continuous numbers and how many integers."""

A3: Shape = (
    ((0, 0), (0, 0), (0, 2), (0, 0), (0, 0), (2, 2)),
    ((0, 0), (1, 1), (0, 3)),
    ((0, 0), (1, 0), (3, 6), (0, 3), (1, 5), (1, 5)),
)
A2: Shape = (
    ((0, 0), (0, 0), (0, 2), (0, 0), (0, 0), (2, 2), (0, 0), (0, 2)),
    (
        *((0, 0), (1, 1), (0, 1), (1, 1), (2, 3), (0, 2)),
        *((2, 4), (0, 5), (0, 3), (1, 1), (0, 3)),
    ),
    ((0, 0), (0, 1), (1, 0), (1, 0), (1, 0), (1, 0), (0, 0)),
    (
        *((0, 0), (1, 0), (3, 6), (0, 3), (1, 5), (1, 5)),
        *((1, 2), (3, 3), (0, 2), (2, 3), (2, 5)),
    ),
)


def artificial_space(shape: Shape) -> Space:
    """Steps of algorithms `a0`, `a1`, ... with hyperparameters `c0`, ... and `d0`, ..."""
    return Space(
        "artificial",
        tuple(
            Step(f"step{i}", tuple(_algorithm(j, *counts) for j, counts in enumerate(algorithms)))
            for i, algorithms in enumerate(shape)
        ),
    )


def _algorithm(j: int, n_continuous: int, n_integers: int) -> Algorithm:
    numbers = [
        *(Float(f"c{k}", (1.0, 10.0), default=5.5) for k in range(n_continuous)),
        *(Integer(f"d{k}", (1, 10), default=5) for k in range(n_integers)),
    ]
    return algorithm(f"a{j}", *numbers, estimator="x.Y" if numbers else "")


def after_step(before: float, w: np.ndarray, theta: np.ndarray, xi: np.ndarray) -> float:
    """The loss after a step with weights w, values theta and standard normal draws xi."""
    if len(theta):
        total = theta.sum()
        v = abs(w @ theta / (total if abs(total) >= 1e-12 else 1e-12))
    else:
        v = abs(w[0])
    return float(np.abs(before + v * xi).max())


class ArtificialLoss:
    """One draw of the weights and seeds; deterministic afterwards."""

    def __init__(self, shape: Shape, world: int) -> None:
        rng = np.random.RandomState(world)
        self._steps = [
            [
                (rng.normal(size=max(c + d, 1)), np.random.RandomState(rng.randint(2**31)))
                for c, d in algorithms
            ]
            for algorithms in shape
        ]
        self._draws = [[s.normal(size=10) for _, s in step] for step in self._steps]

    def __call__(self, query: Query) -> float:
        loss = 0.0
        for i, (_, choice) in enumerate(query.configuration.choices):
            j = int(choice.algorithm[1:])
            theta = np.array([float(value) for _, value in choice.values])
            loss = after_step(loss, self._steps[i][j][0], theta, self._draws[i][j])
        return loss


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
