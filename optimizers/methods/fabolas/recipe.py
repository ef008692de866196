"""The sizes of subsets and basis functions of them (section 3.1), and what methods make of them.

A `SearchRecipe` has the parts in which Fabolas and the methods that it is compared with differ.
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
"""A loss that falls as a power of the rows is linear in s when both are logarithms; s^3 is what
only results near s = 1 can tell."""

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
"""As the paper has it: (1, (1 - s)^2), and no curve that all configurations share."""

COST = Basis(
    lambda s: _columns(np.ones_like(s), s),
    lambda s: _columns(np.zeros_like(s), np.ones_like(s)),
    trend=(1.0, 4.0),
)
"""Of ln seconds, so that seconds are a power of the rows."""

TASKS = Basis(
    lambda s: _columns((s == 1).astype(float), (s < 1).astype(float)),
    lambda s: np.zeros((len(s), 2)),
    trend=(0.0, 0.0),
)
"""Two tasks, all rows and one subset, correlated freely (Swersky et al. 2013)."""

FULL = Basis(lambda s: np.ones((len(s), 1)), lambda s: np.zeros((len(s), 1)), trend=(0.0,))
"""All rows alone: s is not looked at."""


def log_size(n: ArrayLike, n_min: int, n_max: int) -> Array:
    """Return s, the size of a subset on a logarithmic scale from 0 to 1 (Klein et al. 2017).

    `s = log(n / n_min) / log(n_max / n_min)`, clipped to [0, 1]; 1 where `n_min = n_max`.
    """
    n = np.asarray(n, dtype=float)
    if n_min == n_max:
        return np.ones_like(n)
    return np.clip(np.log(n / n_min) / np.log(n_max / n_min), 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of subsets that may be asked for.

    Attributes:
        n_min: Training rows of the smallest subset, where s = 0.
        n_max: Training rows of all, where s = 1; 64 where the rows are not known.
        shares: Shares of the rows that may be asked for, rising to 1. Each is a power of one half,
            so that trials of the same size share their subsets and all that is made of them.
        note: Why the smallest subset is larger than the rows alone would ask for, or why there is
            only the full data, for people; empty otherwise.
    """

    n_min: int
    n_max: int
    shares: tuple[float, ...]
    note: str = ""

    def s(self, share: ArrayLike) -> Array:
        """Return s of shares of the rows, of their shape."""
        return log_size(np.asarray(share, dtype=float) * self.n_max, self.n_min, self.n_max)

    @property
    def is_single(self) -> bool:
        """Whether there is only the full data."""
        return len(self.shares) == 1

    @classmethod
    def single(cls, objective: Objective) -> Self:
        """Return the full data alone."""
        n_rows = objective.n_rows or RULES.unknown_range
        return cls(n_rows, n_rows, (1.0,))

    @classmethod
    def pair(cls, objective: Objective, share: float) -> Self:
        """Return a subset and the full data; the full data alone where the subset has no row."""
        n_rows = objective.n_rows or RULES.unknown_range
        n_min = round(share * n_rows)
        if not 1 <= n_min < n_rows:
            return cls.single(objective)
        return cls(n_min, n_rows, (share, 1.0))

    @classmethod
    def of(cls, objective: Objective) -> Self:
        """Return the sizes for data of so many rows and classes.

        The smallest subset has at least 10 rows a class, 50 in all, 1/256 of the rows, and
        `ROWS_PER_CLASS` rows of the rarest class, or it would not be what all rows are. With fewer
        than 8 times as many rows there is only the full data.
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
    """Return the powers of one half from the least share on, rising to 1."""
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
    """How queries of less than all rows are made.

    Attributes:
        n_draws: Independent families of subsets, given out in turn.
        folds: Folds that small ones are evaluated on; None for all.
    """

    n_draws: int = 1
    folds: int | None = None

    def query(self, configuration: Configuration, share: float, history: History) -> Query:
        """Return a query for a share of the rows, with a family that it has not had yet.

        Args:
            configuration: Of the query.
            share: In (0, 1].
            history: All trials.
        """
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
    """How a method of this family searches.

    Attributes:
        log_basis: Basis functions of ln of an error.
        raw_basis: Of any other loss.
        acquisition: Chooses the next query.
        is_log: Whether errors are learned as their logarithms.
        has_falling_noise: Whether losses of small subsets may scatter more.
        kappa: Deviations added to the prediction of an incumbent.
        verify_every: Asks without a full evaluation after which the predicted best gets one, where
            subsets have proved their worth; None for no full evaluation before the end.
        has_gate: Whether subsets are given up when they tell nothing.
        n_confirmed: Best configurations that are evaluated in full at the end.
        has_anchor: Whether the first evaluations end with one of all rows.
        has_halving: Whether the first evaluations are halved; else each has a subset at random.
        subsets: How queries of less than all rows are made.
        is_drawn: Whether parameters are drawn whatever the option says.
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
        """Whether seconds are learned: only where evaluations may be of less than all rows."""
        return self.acquisition.endswith("_per_cost")

    def learns_logs(self, objective: Objective) -> bool:
        """Return whether losses are learned as their logarithms: those that are errors."""
        return self.is_log and objective.is_percentage

    @classmethod
    def plain(cls, basis: Basis, acquisition: Acquisition, n_confirmed: int = 0) -> "SearchRecipe":
        """Return one with nothing but a process and an acquisition.

        Args:
            basis: Of all losses.
            acquisition: Chooses the next query.
            n_confirmed: Best configurations that are evaluated in full at the end.
        """
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
