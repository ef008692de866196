"""Rungs: how much of a full evaluation each level of a bracket is."""

from dataclasses import dataclass

from prefect_tune.optimizers.method import Fidelity
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.query import Query

__all__ = ["Rungs", "counted_levels", "highest_s"]


@dataclass(frozen=True)
class Rungs:
    """The levels of one fidelity, the last of which is the full evaluation.

    Attributes:
        fidelity: What grows from rung to rung.
        levels: Epochs or folds, or shares of the training rows, strictly growing.
    """

    fidelity: Fidelity
    levels: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.levels) < 2 or sorted(set(self.levels)) != list(self.levels):
            raise ValueError(f"rungs are at least two growing levels; got {self.levels}")

    def __len__(self) -> int:
        return len(self.levels)

    def query(self, configuration: Configuration, rung: int) -> Query:
        """Return the query of a configuration on a rung, counted from 0."""
        if rung == len(self.levels) - 1:
            return Query(configuration)
        if self.fidelity == "subset":
            return Query(configuration, subset=self.levels[rung])
        if self.fidelity == "epochs":
            return Query(configuration, epochs=int(self.levels[rung]))
        return Query(configuration, folds=int(self.levels[rung]))

    def level(self, query: Query) -> float:
        """Return at which level a query is."""
        if query.is_full:
            return self.levels[-1]
        level: float = getattr(query, self.fidelity)
        return level


def highest_s(total: int, eta: int) -> int:
    """Return the largest s with `eta^s <= total`, at least 1, in whole numbers.

    In floating point floor(log(243) / log(3)) is 4.
    """
    s = 0
    while eta ** (s + 1) <= total:
        s += 1
    return max(s, 1)


def counted_levels(total: int, eta: int, s: int) -> tuple[int, ...]:
    """Return `total * eta^-k` for k = s..0, rounded and at least 1 (Li et al. 2018, algorithm 1).

    Args:
        total: Epochs or folds of a full evaluation (R), >= 2.
        eta: What each is divided by to give the one below.
        s: Rungs below the last one, at most `highest_s(total, eta)`.
    """
    return tuple(max(1, round(total / eta**k)) for k in range(s, -1, -1))
