"""The objective from a method's point of view: the loss, the constraints and the bootstraps."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isnan, nan
from typing import Literal


@dataclass(frozen=True, slots=True)
class Bootstraps:
    """Resamples of the held-out examples; raises ValueError if a number is out of range.

    Attributes:
        n: Number of bootstraps.
        share: Fraction of the examples that a bootstrap draws, with replacement. If the share is 0,
            the bootstrap contains each example once.
    """

    n: int
    share: float

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"the number of bootstraps must be at least 1; got {self.n}")
        if not 0 <= self.share <= 1:
            raise ValueError(f"the share of bootstraps must be in [0, 1]; got {self.share}")


@dataclass(frozen=True, slots=True)
class Constraint:
    """A bound on a quantity that is measured with each evaluation.

    Attributes:
        name: Name of the quantity.
        bound: Largest allowed value, or smallest allowed value if `is_at_least`; at least 0.
    """

    name: str
    bound: float
    is_at_least: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.bound < inf:
            raise ValueError(f"the bound of {self.name} must be at least 0; got {self.bound}")

    def value(self, measured: Mapping[str, float]) -> float:
        """Return the measured value, mirrored if `is_at_least`, so that less is better."""
        value = measured.get(self.name, nan)
        return 2 * self.bound - value if self.is_at_least else value

    def excess(self, measured: Mapping[str, float]) -> float:
        """Return the violation as a multiple of the bound; at most 0 if the bound is met.

        For a bound of 0, the excess is the measured quantity itself. If the quantity is missing or
        not a number, the excess is infinite.
        """
        value = self.value(measured)
        return inf if isnan(value) else (value - self.bound) / (self.bound or 1.0)


def violation(constraints: Iterable[Constraint], measured: Mapping[str, float]) -> float:
    """Return the largest excess over all constraints; at most 0 if all constraints are met."""
    return max((constraint.excess(measured) for constraint in constraints), default=0.0)


FailureCost = Literal["bound", "worst"]
"""Rule for the loss of a failed trial: the metric's upper bound, or the worst loss so far."""


LEAST_ROWS = 100
"""Minimum number of rows in a subset, or of rows of the rarest class in a partial run. Losses on
fewer rows hardly predict losses on all rows."""
MANY_ROWS = 20_000
"""Number of training rows above which a race starts with evaluations on part of the rows."""


PortableSeconds = tuple[str, str, float, float | None]
"""Run times of an algorithm: step, algorithm, log seconds of a fit on 1,000 rows of 10 columns in
two classes, and log seconds of 1,000 held-out rows (None if not measured separately)."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The metric, the constraints and the size of the data from a method's point of view.

    Attributes:
        metric: Name of the metric.
        unit: Unit of the loss, such as "percent".
        lower: Lower bound of the loss; -inf without a bound.
        upper: Upper bound of the loss; inf without a bound.
        chance: Loss of the baseline, which uses no features; None if unknown.
        constraints: Constraints on measured quantities.
        n_rows: Number of training rows in the smallest fold. Unknown numbers are None.
        n_held_out: Number of held-out rows in the smallest fold.
        n_classes: Number of classes; None for regression.
        n_rarest: Number of training rows of the rarest class in the smallest fold.
        n_folds: Number of folds in a full evaluation.
        n_columns: Number of columns of a table, or number of distinct event codes.
        earlier_seconds: Run times of algorithms in earlier studies, from `Costs.portable`.
        epochs: Number of epochs in a full training run (t_max); None if models do not train in
            epochs.
        iterative: Ids of the models that train in epochs.
    """

    metric: str = "error"
    unit: str = "percent"
    lower: float = 0.0
    upper: float = 100.0
    chance: float | None = None
    constraints: tuple[Constraint, ...] = ()
    n_rows: int | None = None
    n_held_out: int | None = None
    n_classes: int | None = None
    n_rarest: int | None = None
    n_folds: int | None = None
    n_columns: int | None = None
    earlier_seconds: tuple[PortableSeconds, ...] = ()
    epochs: int | None = None
    iterative: frozenset[str] = frozenset()

    @property
    def is_percentage(self) -> bool:
        """Whether losses are percentages."""
        return self.unit == "percent"
