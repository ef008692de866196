"""Sizes of subsets, basis functions over them (section 3.1), and the strategies of the methods."""

from dataclasses import dataclass
from math import ceil
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.models.fidelity_kernel import Basis
from prefect_tune.optimizers.space.configuration import ROWS_PER_CLASS
from prefect_tune.optimizers.space.vectors import Array
from prefect_tune.optimizers.trials.objective import Objective

LOG_LOSS = Basis(
    lambda s: np.column_stack([np.ones_like(s), 1 - s, s**3]),
    trend=(1.0, 4.0, 0.02),
)
"""Basis of log losses: a loss that falls as a power of the rows is then linear in s. Only results
near s = 1 identify the coefficient of s^3."""

RAW_LOSS = Basis(
    lambda s: np.column_stack([np.ones_like(s), (1 - s) ** 2, s**3]),
    trend=(1.0, 4.0, 0.02),
)

PAPER_LOSS = Basis(
    lambda s: np.column_stack([np.ones_like(s), (1 - s) ** 2]),
    trend=(0.0, 0.0),
)
"""The paper's basis: (1, (1 - s)^2), without a shared curve."""

COST = Basis(
    lambda s: np.column_stack([np.ones_like(s), s]),
    trend=(1.0, 4.0),
)
"""Basis of ln seconds, which makes seconds a power of the rows."""

TASKS = Basis(
    lambda s: np.column_stack([(s == 1).astype(float), (s < 1).astype(float)]),
    trend=(0.0, 0.0),
)
"""Two tasks, all rows and one subset, with a free correlation (Swersky et al. 2013)."""

FULL = Basis(lambda s: np.ones((len(s), 1)), trend=(0.0,))
"""All rows alone, independent of s."""


UNKNOWN_RANGE = round(1 / RULES.first_shares[0])
"""All rows per row of the smallest subset, if the number of rows is unknown."""

Acquisition = Literal["gain", "gain_per_cost", "divergence_per_cost", "improvement"]
"""Information about the minimiser on all rows, or expected improvement there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """The settings in which the methods of this family differ.

    Attributes:
        basis: Basis functions of the losses, which are learned as logarithms if `is_log`.
        is_published: Whether noise is the same at all sizes, losses are not capped, the incumbent
            is the best mean, and there are neither verifications nor a gate.
        is_drawn: Whether parameters are drawn instead of fitted.
        one_fold_to: Largest share of the rows that is evaluated on one fold.
        n_confirmed: Predicted best configurations evaluated in full at the end.
    """

    basis: Basis
    acquisition: Acquisition
    is_log: bool
    is_published: bool = True
    is_drawn: bool = False
    one_fold_to: float = 0.0
    n_confirmed: int = 0

    @property
    def has_costs(self) -> bool:
        """Whether seconds are learned, which only subsets need."""
        return self.acquisition.endswith("_per_cost")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The allowed sizes of subsets.

    Attributes:
        n_min, n_max: Training rows of the smallest subset (s = 0), and all rows (s = 1; 64 if
            unknown).
        shares: Allowed shares of the rows, rising to 1. Each is a power of 1/2, so that trials of
            the same size share subsets and cached results.
    """

    n_min: int
    n_max: int
    shares: tuple[float, ...]
    note: str = ""

    def s(self, share: ArrayLike) -> Array:
        """Return s = log(n / n_min) / log(n_max / n_min) in [0, 1] of shares, in their shape."""
        n = np.asarray(share, dtype=float) * self.n_max
        if self.n_min == self.n_max:
            return np.ones_like(n)
        return np.clip(np.log(n / self.n_min) / np.log(self.n_max / self.n_min), 0.0, 1.0)

    @property
    def is_single(self) -> bool:
        """Whether the full data is the only size."""
        return len(self.shares) == 1

    @property
    def first_shares(self) -> tuple[float, ...]:
        """Small shares of the rows for the first design, rising."""
        least, largest = RULES.first_shares
        return tuple(q for q in self.shares[:-1] if least <= q <= largest) or self.shares[:1]

    @classmethod
    def single(cls, objective: Objective, note: str = "") -> Self:
        """Return the full data alone."""
        n_rows = objective.n_rows or UNKNOWN_RANGE
        return cls(n_rows, n_rows, (1.0,), note)

    @classmethod
    def pair(cls, objective: Objective, share: float) -> Self:
        """Return a subset and the full data, or the full data alone if the subset has no row."""
        n_rows = objective.n_rows or UNKNOWN_RANGE
        n_min = round(share * n_rows)
        if not 1 <= n_min < n_rows:
            return cls.single(objective)
        return cls(n_min, n_rows, (share, 1.0))

    @classmethod
    def of(cls, objective: Objective) -> Self:
        """Return the sizes for the objective's rows and classes.

        The smallest subset has at least 10 rows a class, 50 in all, 1/256 of the rows, and
        `ROWS_PER_CLASS` rows of the rarest class, so that it resembles the full data. If all rows
        are fewer than 8 times as many, the full data is the only size.
        """
        n_rows, rarest = objective.n_rows, objective.n_rarest
        if n_rows is None:
            return cls(1, UNKNOWN_RANGE, _dyadic(1 / UNKNOWN_RANGE))
        of_classes = RULES.rows_per_class * (objective.n_classes or 0)
        usual = max(of_classes, RULES.least_rows, n_rows // RULES.most_range)
        least = usual
        if objective.n_classes and rarest:
            least = max(usual, ceil(ROWS_PER_CLASS * n_rows / rarest))
        if n_rows * RULES.first_shares[1] < least:
            of_rarest = f", as the rarest class has {rarest}" if least > usual else ""
            note = (
                "subsets cannot help, and all evaluations are of all rows: the smallest subset "
                f"would have {least} of the {n_rows} training rows{of_rarest}"
            )
            return cls.single(objective, note)
        shares = _dyadic(least / n_rows)
        return cls(max(round(shares[0] * n_rows), 1), n_rows, shares)


def _dyadic(least: float) -> tuple[float, ...]:
    shares = [1.0]
    while shares[-1] / 2 >= least:
        shares.append(shares[-1] / 2)
    return tuple(reversed(shares))
