"""The sizes of subsets, their basis functions (section 3.1), and the search recipes of methods.

A `SearchRecipe` has the parts in which Fabolas and its reference methods differ.
"""

from dataclasses import dataclass, field
from math import ceil
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.space.configuration import ROWS_PER_CLASS, Configuration, Query
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.surrogates.fidelity_kernel import Basis
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Objective


def _columns(*columns: Array) -> Array:
    return np.column_stack(columns)


LOG_LOSS = Basis(
    lambda s: _columns(np.ones_like(s), 1 - s, s**3),
    lambda s: _columns(np.zeros_like(s), -np.ones_like(s), 3 * s**2),
    trend=(1.0, 4.0, 0.02),
)
"""Basis of log losses: a loss that falls as a power of the rows is then linear in s. Only results
near s = 1 identify the coefficient of s^3."""

RAW_LOSS = Basis(
    lambda s: _columns(np.ones_like(s), (1 - s) ** 2, s**3),
    lambda s: _columns(np.zeros_like(s), -2 * (1 - s), 3 * s**2),
    trend=(1.0, 4.0, 0.02),
)

PAPER_LOSS = Basis(
    lambda s: _columns(np.ones_like(s), (1 - s) ** 2),
    lambda s: _columns(np.zeros_like(s), -2 * (1 - s)),
    trend=(0.0, 0.0),
)
"""The paper's basis: (1, (1 - s)^2), without a shared curve."""

COST = Basis(
    lambda s: _columns(np.ones_like(s), s),
    lambda s: _columns(np.zeros_like(s), np.ones_like(s)),
    trend=(1.0, 4.0),
)
"""Basis of ln seconds, which makes seconds a power of the rows."""

TASKS = Basis(
    lambda s: _columns((s == 1).astype(float), (s < 1).astype(float)),
    lambda s: np.zeros((len(s), 2)),
    trend=(0.0, 0.0),
)
"""Two tasks, all rows and one subset, with a free correlation (Swersky et al. 2013)."""

FULL = Basis(lambda s: np.ones((len(s), 1)), lambda s: np.zeros((len(s), 1)), trend=(0.0,))
"""All rows alone, independent of s."""


def log_size(n: ArrayLike, n_min: int, n_max: int) -> Array:
    """Return s = log(n / n_min) / log(n_max / n_min), clipped to [0, 1]; 1 if `n_min = n_max`."""
    n = np.asarray(n, dtype=float)
    if n_min == n_max:
        return np.ones_like(n)
    return np.clip(np.log(n / n_min) / np.log(n_max / n_min), 0.0, 1.0)


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
        """Return s of shares of the rows, in their shape."""
        return log_size(np.asarray(share, dtype=float) * self.n_max, self.n_min, self.n_max)

    @property
    def is_single(self) -> bool:
        """Whether the full data is the only size."""
        return len(self.shares) == 1

    @classmethod
    def single(cls, objective: Objective) -> Self:
        """Return the full data alone."""
        n_rows = objective.n_rows or RULES.unknown_range
        return cls(n_rows, n_rows, (1.0,))

    @classmethod
    def pair(cls, objective: Objective, share: float) -> Self:
        """Return a subset and the full data, or the full data alone if the subset has no row."""
        n_rows = objective.n_rows or RULES.unknown_range
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
            return cls(1, RULES.unknown_range, _dyadic(1 / RULES.unknown_range))
        n_classes = objective.n_classes or 0
        of_classes = RULES.rows_per_class * n_classes
        usual = max(of_classes, RULES.least_rows, n_rows // RULES.most_range)
        least = usual
        if n_classes and rarest:
            least = max(usual, ceil(ROWS_PER_CLASS * n_rows / rarest))
        shares = _dyadic(least / n_rows) if least < n_rows else (1.0,)
        if n_rows < RULES.least_range * least or len(shares) == 1:
            return cls(n_rows, n_rows, (1.0,), _too_few(n_rows, least, usual, rarest))
        is_raised = shares[0] > _dyadic(usual / n_rows)[0]
        note = (
            f"the smallest subset is 1/{round(1 / shares[0])} of the rows, as the rarest class of "
            f"{rarest} training rows would have fewer than {ROWS_PER_CLASS} in a smaller one"
        )
        return cls(max(round(shares[0] * n_rows), 1), n_rows, shares, note if is_raised else "")


def _dyadic(least: float) -> tuple[float, ...]:
    shares = [1.0]
    while shares[-1] / 2 >= least:
        shares.append(shares[-1] / 2)
    return tuple(reversed(shares))


def _too_few(n_rows: int, least: int, usual: int, rarest: int | None) -> str:
    why = (
        f"the smallest subset would have {least} of the {n_rows} training rows"
        if least == usual
        else f"the rarest class has {rarest} of the {n_rows} training rows, "
        f"so the smallest subset would have {least}"
    )
    return f"subsets cannot help, and all evaluations are of all rows: {why}"


@dataclass(frozen=True, slots=True)
class Subsets:
    """Builder of queries on `n_draws` families of subsets in turn; small ones have `folds`."""

    n_draws: int = 1
    folds: int | None = None

    def query(self, configuration: Configuration, share: float, history: History) -> Query:
        """Return a query for a share of the rows, in (0, 1], from an unused family of subsets."""
        if share == 1.0:
            return Query(configuration)
        taken = {
            t.query.subset_draw
            for t in history
            if t.query.configuration == configuration and t.query.subset == share
        }
        turn = sum(t.query.subset < 1 for t in history)
        draws = [(turn + i) % self.n_draws for i in range(self.n_draws)]
        draw = next((d for d in draws if d not in taken), draws[0])
        return Query(configuration, share, draw, folds=self.folds if share <= RULES.small else None)

    def most(self, share: float) -> int:
        """Return how often a configuration may be evaluated on a share of the rows."""
        return 1 if share == 1.0 else self.n_draws


Acquisition = Literal["gain", "gain_per_cost", "divergence_per_cost", "improvement"]
"""Information about the minimiser on all rows, or expected improvement there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRecipe:
    """The settings in which the search methods of this family differ.

    Attributes:
        log_basis, raw_basis: Basis functions for log errors, and for other losses.
        has_falling_noise: Whether noise may be larger on small subsets.
        kappa: Deviations added to the prediction of an incumbent.
        verify_every: Asks without a full evaluation after which the predicted best gets one, if
            subsets have proved helpful; None for none before the end.
        n_confirmed: Predicted best configurations evaluated in full at the end.
        has_halving: Whether the design is successive halving; if not, its sizes are random.
        is_drawn: Whether parameters are drawn regardless of the option.
    """

    log_basis: Basis
    raw_basis: Basis
    acquisition: Acquisition = "gain_per_cost"
    is_log: bool = True
    has_falling_noise: bool = True
    kappa: float = 1.0
    verify_every: int | None = 9
    has_gate: bool = True
    n_confirmed: int = 3
    has_anchor: bool = True
    has_halving: bool = True
    subsets: Subsets = field(default_factory=Subsets)
    is_drawn: bool = False

    @property
    def has_costs(self) -> bool:
        """Whether seconds are modelled, which only subsets need."""
        return self.acquisition.endswith("_per_cost")

    def learns_logs(self, objective: Objective) -> bool:
        """Return whether losses are learned as logarithms, which requires errors."""
        return self.is_log and objective.is_percentage

    @classmethod
    def plain(cls, basis: Basis, acquisition: Acquisition, n_confirmed: int = 0) -> "SearchRecipe":
        """Return a recipe with only a process and an acquisition, and one basis for all losses."""
        return cls(
            log_basis=basis,
            raw_basis=basis,
            acquisition=acquisition,
            has_falling_noise=False,
            kappa=0.0,
            verify_every=None,
            has_gate=False,
            n_confirmed=n_confirmed,
        )
