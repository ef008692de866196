"""Rungs: configurations begin on a small part of a full evaluation, and the best are promoted.

Halving, Hyperband, BOHB, BAPI's start and Fabolas' first design share this module: levels and their
queries, the end of a rung, the ranking of its runs, and the resulting steps. Each method decides
which runs belong to a rung, and which ranked runs are promoted.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, TypeVar

from prefect_tune.optimizers.method import Fidelity
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.sampling import SpaceExhausted
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.trial import Trial

Level = TypeVar("Level", int, float)
"""Epochs or folds, or a share of the training rows."""


@dataclass(frozen=True)
class Rungs:
    """The levels of one fidelity (epochs, folds or shares of rows), up to the full evaluation."""

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
        level = self.levels[rung] if self.fidelity == "subset" else int(self.levels[rung])
        asked: dict[str, Any] = {self.fidelity: level}
        return Query(configuration, **asked)

    def level(self, query: Query) -> float:
        """Return the level of a query."""
        return self.levels[-1] if query.is_full else getattr(query, self.fidelity)


def counted_levels(total: int, eta: int) -> tuple[int, ...]:
    """Return `total * eta^-k` for k = s..0, rounded and at least 1 (Li et al. 2018, algorithm 1).

    `total` is R, at least 2. s is the largest with `eta^s <= total`, at least 1, and exact where a
    logarithm is not.
    """
    s = 1
    while eta ** (s + 1) <= total:
        s += 1
    return tuple(max(1, round(total / eta**k)) for k in range(s, -1, -1))


@dataclass(frozen=True, slots=True)
class Begin(Generic[Level]):
    """Begin a new configuration at a level."""

    level: Level


@dataclass(frozen=True, slots=True)
class Promote(Generic[Level]):
    """Evaluate a configuration at a higher level."""

    configuration: Configuration
    level: Level


@dataclass(frozen=True, slots=True)
class Wait:
    """No step until a pending trial is told; a method may use its model meanwhile."""


@dataclass(frozen=True, slots=True)
class Done:
    """No further step."""


def is_decided(runs: Sequence[Trial], enough: float = inf) -> bool:
    """Return whether a rung is decided: all of its runs are told, or enough of them."""
    n_told = sum(t.is_told for t in runs)
    return n_told == len(runs) or n_told >= enough


def n_promoted(n: int, eta: int) -> int:
    """Return how many of n runs are promoted: n / eta, rounded down, at least one."""
    return max(1, n // eta)


def promotable(best: Iterable[Trial], gone: Collection[Configuration]) -> Iterator[Trial]:
    """Yield the best runs of a rung whose configurations have not been promoted yet."""
    return (t for t in best if t.query.configuration not in gone)


def ranked(trials: Iterable[Trial], history: History) -> list[Trial]:
    """Return the trials with a loss, the best first and infeasible ones last."""

    def key(trial: Trial) -> tuple[float, float, int]:
        loss = inf if trial.loss is None else trial.loss
        return max(history.violation(trial), 0.0), loss, trial.number

    return sorted((t for t in trials if t.loss is not None), key=key)


def all_begun() -> SpaceExhausted:
    """Return the exception for a study that may start and promote no more configurations."""
    return SpaceExhausted("all configurations of the budget were started and have ended")
