"""The arithmetic of ADMM's operator splitting: integers, multipliers and slacks.

Liu, Ram et al., "An ADMM Based Framework for AutoML Pipeline Configuration" (AAAI 2020), algorithms
1 and 2, in scaled form: `dual` is lambda / rho. Integers are positions on a unit scale of their
values. Within a rounding cell the loss is constant, so the relaxed integer that minimises the
augmented term has a closed form. The slack for a given constraint value also has one.
"""

import numpy as np
from numpy.typing import ArrayLike

from prefect_tune.optimizers.space.unit_interval import Array, Grid


def distances(grid: Grid, delta: float, dual: float) -> Array:
    """(theta(v) - b)^2 by value v, with b = delta - dual and theta(v) nearest to b, shape (L,)."""
    b = delta - dual
    return (grid.nearest_in_cells(b) - b) ** 2


def integer_update(
    grid: Grid, delta: float, dual: float, chosen: int | None
) -> tuple[float, float, float]:
    """Return the relaxed integer, delta and dual after one iteration (algorithm 1, eq. 9 and 11).

    `delta` and `dual` are from the last iteration. `chosen` is the index of theta-min's value; None
    if the integer is inactive and depends on the augmented term alone.
    """
    b = delta - dual
    relaxed = float(np.clip(b, 0.0, 1.0) if chosen is None else grid.nearest_in_cells(b)[chosen])
    projected = float(grid.positions[grid.projected(relaxed + dual)])
    return relaxed, projected, dual + relaxed - projected


def slack(value: ArrayLike, bound: float, multiplier: float, rho_g: float) -> Array:
    """U = max(bound - g - mu / rho_g, 0), which minimises the augmented term.

    The paper also limits u to the bound. The limit has no effect on quantities `>= 0`, but would
    count negative ones as violations.
    """
    return np.maximum(bound - np.asarray(value) - multiplier / rho_g, 0.0)


def constraint_penalty(value: ArrayLike, bound: float, multiplier: float, rho_g: float) -> Array:
    """(rho_g / 2) (g - bound + u + mu / rho_g)^2 at the best slack u."""
    u = slack(value, bound, multiplier, rho_g)
    return 0.5 * rho_g * (np.asarray(value) - bound + u + multiplier / rho_g) ** 2


def next_multiplier(value: float, bound: float, multiplier: float, rho_g: float) -> float:
    """Mu + rho_g (g - bound + u)."""
    u = float(slack(value, bound, multiplier, rho_g))
    return multiplier + rho_g * (value - bound + u)


def reward(loss: ArrayLike, f_hat: float) -> Array:
    """1 - clip(f / f_hat, 0, 1): the probability that a pull counts as a success (eq. A39)."""
    return 1 - np.clip(np.asarray(loss) / f_hat, 0.0, 1.0)
