"""Problems of numbers in [0, 1] whose losses and seconds depend on the rows.

In the good twin, subsets show which configurations are good on all rows; in the bad twin, small
subsets are useless.
"""

import math
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from ConfigSpace import Float
from simulation import Outcome
from worlds import algorithm

from prefect_tune.optimizers import Configuration, Objective, Query, Space, Step

BEST = 0.37
"""Where losses are least, in each dimension."""
ROWS = Objective(
    metric="distance",
    unit="",
    lower=-math.inf,
    upper=math.inf,
    n_rows=12_800,
    n_held_out=2_000,
    n_classes=0,
    n_folds=1,
)


def cube(d: int = 1) -> Space:
    """Return a space of one algorithm with `d` numbers in [0, 1]."""
    numbers = (Float(f"x{i}", (0.0, 1.0), default=0.5) for i in range(d))
    return Space("cube", (Step("model", (algorithm("a", *numbers),)),))


def configuration(x: float | tuple[float, ...]) -> Configuration:
    """Return the configuration at a position."""
    numbers = x if isinstance(x, tuple) else (x,)
    values = {f"x{i}": float(value) for i, value in enumerate(numbers)}
    return Configuration.of(cube(len(numbers)), ("a",), [values])


def position(query: Query) -> tuple[float, ...]:
    """Return the position of a query."""
    return tuple(float(v) for _, v in query.configuration["model"].values)


@dataclass(frozen=True)
class Twin:
    """A parabola.

    Attributes:
        is_good: Whether subsets are informative.
        drop: Cost on all rows, as a multiple of the cost on the fewest rows.
    """

    is_good: bool = True
    drop: float = 60.0

    def __call__(self, query: Query) -> Outcome:
        """Return loss and seconds, reproducible per query."""
        s = max(1 + math.log(query.subset) / math.log(256), 0.0)
        text = f"{query.configuration.canonical}{query.subset}{query.subset_draw}"
        noise = np.random.default_rng([0, crc32(text.encode())])
        loss = sum((x - BEST) ** 2 for x in position(query)) + noise.normal(0, 0.003)
        if not self.is_good and s < 0.8:
            loss = noise.normal(0.12, 0.1)
        return float(loss + 0.2 * (1 - s) ** 2), 1000.0 * self.drop ** (s - 1)
