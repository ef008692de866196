"""Bounds on quantities measured besides the loss, and how far a trial is beyond them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isnan

__all__ = ["Constraint", "violation"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """A bound on a quantity that is measured with each evaluation.

    Attributes:
        name: Name of the quantity, as in `Evaluation.constraints`.
        bound: Its largest allowed value, `>= 0`.
    """

    name: str
    bound: float

    def __post_init__(self) -> None:
        if not 0 <= self.bound < inf:
            raise ValueError(f"the bound of {self.name} must be >= 0; got {self.bound}")

    def excess(self, measured: Mapping[str, float]) -> float:
        """Return by how much the bound is exceeded, in multiples of it; `<= 0` within.

        Of a bound of 0, the absolute excess. A quantity that was not measured, or is not a number,
        exceeds every bound infinitely.
        """
        value = measured.get(self.name)
        if value is None or isnan(value):
            return inf
        return (value - self.bound) / (self.bound or 1.0)


def violation(constraints: Iterable[Constraint], measured: Mapping[str, float]) -> float:
    """Return the largest excess of any constraint; `<= 0` where all are met."""
    return max((constraint.excess(measured) for constraint in constraints), default=0.0)
