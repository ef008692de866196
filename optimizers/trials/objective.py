"""The objective as methods see it: the loss, its constraints and bootstraps."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isnan
from typing import Literal


@dataclass(frozen=True, slots=True)
class Bootstraps:
    """Resamples of the held-out examples; `ValueError` if a number is out of range.

    Each of `n` draws a `share` of the examples with replacement; share 0 has each example once.
    """

    n: int
    share: float

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"the number of bootstraps must be at least 1; got {self.n}")
        if not 0 <= self.share <= 1:
            raise ValueError(f"the share of a bootstrap must be in [0, 1]; got {self.share}")


@dataclass(frozen=True, slots=True)
class Constraint:
    """A bound, `>= 0`, on a quantity that is measured with each evaluation."""

    name: str
    bound: float

    def __post_init__(self) -> None:
        if not 0 <= self.bound < inf:
            raise ValueError(f"the bound of {self.name} must be >= 0; got {self.bound}")

    def excess(self, measured: Mapping[str, float]) -> float:
        """Return by how much the bound is exceeded, in multiples of it; `<= 0` within.

        For a bound of 0, the excess is absolute. A quantity that is missing, or not a number,
        exceeds every bound infinitely.
        """
        value = measured.get(self.name)
        return inf if value is None or isnan(value) else (value - self.bound) / (self.bound or 1.0)


def violation(constraints: Iterable[Constraint], measured: Mapping[str, float]) -> float:
    """Return the largest excess of any constraint; `<= 0` if all are met."""
    return max((constraint.excess(measured) for constraint in constraints), default=0.0)


FailureCost = Literal["bound", "worst"]
"""Loss of a failed trial: the metric's upper bound, or the worst finished loss."""


MANY_ROWS = 20_000
"""Training rows above which a run on part of them comes first."""


PortableSeconds = tuple[str, str, float, float | None]
"""A step, an algorithm, ln seconds of a fit on 1,000 rows of 10 columns in two classes, and of
1,000 held-out rows, if these were measured separately."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The metric, the constraints and the size of the data, as methods see them.

    Attributes:
        unit: Unit of the loss, for instance "percent".
        lower: Least possible loss; -inf if there is none.
        upper: Largest possible loss; inf if there is none.
        chance: Loss of guessing without features; None if unknown.
        n_rows: Training rows of the smallest fold. This and the next attributes may be None.
        n_held_out: Held-out rows of the smallest fold.
        n_rarest: Training rows of the rarest class in the smallest fold.
        n_folds: Folds of a full evaluation.
        n_columns: Columns of a table, or different codes of events.
        earlier_seconds: Seconds of algorithms in earlier studies, from `Costs.portable`.
        epochs: Epochs of a full training (t_max); None if models are fitted at once.
        iterative: Ids of the model algorithms that train in epochs.
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
