"""The artificial objective of ADMM's appendix 15, on spaces of the shapes of its tables A3 and A2.

Algorithm j of step i has fixed weights w and a fixed seed; with theta the values of its
hyperparameters, v = |w . theta / sum theta|, and the loss after step i is the largest |x| of ten
draws x ~ N(loss before, v) of that seed. Not stated there and settled here: numbers lie in [1, 10],
and an algorithm without hyperparameters has v = |w_0|.
"""

import numpy as np
from ConfigSpace import Float, Integer
from worlds import algorithm

from prefect_tune.optimizers import Algorithm, Query, Space, Step

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
