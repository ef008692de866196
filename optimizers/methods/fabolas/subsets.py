"""Sizes of subsets, basis functions of the size (section 3.1), and strategies of the methods."""

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
"""Basis of log losses. If a loss decreases as a power of the number of rows, its logarithm is
linear in s. Only results near s = 1 identify the coefficient of s^3."""

RAW_LOSS = Basis(
    lambda s: np.column_stack([np.ones_like(s), (1 - s) ** 2, s**3]),
    trend=(1.0, 4.0, 0.02),
)

PAPER_LOSS = Basis(
    lambda s: np.column_stack([np.ones_like(s), (1 - s) ** 2]),
    trend=(0.0, 0.0),
)
"""The paper's basis, (1, (1 - s)^2), without a trend shared by all configurations."""

PAPER_COST = Basis(lambda s: np.column_stack([np.ones_like(s), s]), trend=(0.0, 0.0))
"""The paper's basis of log seconds, (1, s), which makes run times a power of the number of rows."""

COST = Basis(PAPER_COST.functions, trend=(1.0, 4.0))
"""The paper's basis of log seconds, with a trend shared by all configurations."""

TASKS = Basis(
    lambda s: np.column_stack([(s == 1).astype(float), (s < 1).astype(float)]),
    trend=(0.0, 0.0),
)
"""Basis of two tasks, all rows and one subset, with any correlation (Swersky et al. 2013)."""

FULL = Basis(lambda s: np.ones((len(s), 1)), trend=(0.0,))
"""Basis of full evaluations alone, independent of s."""


UNKNOWN_RANGE = round(1 / RULES.first_shares[0])
"""Ratio of all rows to the rows of the smallest subset, if the number of rows is unknown."""

Acquisition = Literal["gain", "gain_per_cost", "divergence_per_cost", "improvement"]
"""Name of the acquisition: information about the minimizer on all rows, in total or per second, or
expected improvement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """The settings in which the methods of this family differ.

    Attributes:
        basis: Basis functions of the losses.
        acquisition: Acquisition that the search maximizes.
        is_log: Whether the logarithms of losses are modeled.
        is_published: Whether to follow the paper: equal noise at all sizes, uncapped losses, the
            lowest predicted mean as the incumbent, and neither verifications nor a gate.
        is_drawn: Whether parameters are drawn instead of fitted.
        one_fold_to: Largest fraction of the rows that is evaluated on one fold.
        n_confirmed: Number of configurations to confirm on all rows at the end.
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
        """Whether run times are modeled, which is needed only if subsets are used."""
        return self.acquisition.endswith("_per_cost")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The allowed sizes of subsets.

    Attributes:
        n_min: Number of training rows of the smallest subset (s = 0).
        n_max: Number of all training rows (s = 1); 64 if unknown.
        shares: Allowed fractions of the rows, increasing to 1. `of` chooses powers of 1/2, so that
            trials of the same size share subsets and cached results.
        note: Note for users if subsets cannot be used.
        is_continuous: Whether any number of rows from n_min to n_max is allowed, as in the paper.
    """

    n_min: int
    n_max: int
    shares: tuple[float, ...]
    note: str = ""
    is_continuous: bool = False

    def s(self, share: ArrayLike) -> Array:
        """Return s = log(n / n_min) / log(n_max / n_min) in [0, 1], in the shape of `share`."""
        n = np.asarray(share, dtype=float) * self.n_max
        if self.n_min == self.n_max:
            return np.ones_like(n)
        return np.clip(np.log(n / self.n_min) / np.log(self.n_max / self.n_min), 0.0, 1.0)

    def nearest(self, s: float | Array) -> float:
        """Return the fraction in `shares` that is nearest to s."""
        return self.shares[int(np.argmin(np.abs(self.s(self.shares) - s)))]

    def share(self, s: float) -> float:
        """Return the allowed fraction of the rows that is nearest to s."""
        if self.is_continuous:
            return round(self.n_min ** (1 - s) * self.n_max**s) / self.n_max
        return self.nearest(s)

    @property
    def is_single(self) -> bool:
        """Whether all rows are the only size."""
        return len(self.shares) == 1

    @property
    def first_shares(self) -> tuple[float, ...]:
        """Small fractions of the rows for the initial design, in increasing order."""
        least, largest = RULES.first_shares
        return tuple(q for q in self.shares[:-1] if least <= q <= largest) or self.shares[:1]

    @classmethod
    def single(cls, objective: Objective, note: str = "") -> Self:
        """Return sizes with all rows as the only size."""
        n_rows = objective.n_rows or UNKNOWN_RANGE
        return cls(n_rows, n_rows, (1.0,), note)

    @classmethod
    def pair(cls, objective: Objective, share: float) -> Self:
        """Return one subset and all rows, or only all rows if the subset would be empty."""
        n_rows = objective.n_rows or UNKNOWN_RANGE
        n_min = round(share * n_rows)
        if not 1 <= n_min < n_rows:
            return cls.single(objective)
        return cls(n_min, n_rows, (share, 1.0))

    @classmethod
    def of(cls, objective: Objective, *, is_continuous: bool = False) -> Self:
        """Return the sizes for the rows and classes of an objective.

        The smallest subset has at least 10 rows per class on average, 50 rows, 1/256 of all rows,
        and `ROWS_PER_CLASS` rows of the rarest class, so that it resembles the full data. If the
        smallest subset would have more than 1/8 of all rows, all rows are the only size.
        Continuous sizes follow the paper: the smallest subset has 10 rows per class, or 50 rows for
        regression, which the paper does not treat.
        """
        n_rows, rarest = objective.n_rows, objective.n_rarest
        if n_rows is None:
            return cls(1, UNKNOWN_RANGE, _dyadic(1 / UNKNOWN_RANGE), is_continuous=is_continuous)
        of_classes = RULES.rows_per_class * (objective.n_classes or 0)
        usual = max(of_classes, RULES.least_rows, n_rows // RULES.most_range)
        least, largest = usual, RULES.first_shares[1]
        if is_continuous:
            least, largest = of_classes or RULES.least_rows, 1 / 2
        elif objective.n_classes and rarest:
            least = max(usual, ceil(ROWS_PER_CLASS * n_rows / rarest))
        if n_rows * largest < least:
            of_rarest = f", because the rarest class has {rarest}" if least > usual else ""
            note = (
                "all evaluations use all rows; subsets would save too little, because the smallest "
                f"useful subset has {least} of {n_rows} training rows{of_rarest}"
            )
            return cls.single(objective, note)
        shares = _dyadic(least / n_rows)
        n_min = least if is_continuous else round(shares[0] * n_rows)
        return cls(n_min, n_rows, shares, is_continuous=is_continuous)


def _dyadic(least: float) -> tuple[float, ...]:
    shares = [1.0]
    while shares[-1] / 2 >= least:
        shares.append(shares[-1] / 2)
    return tuple(reversed(shares))
