"""Brackets: configurations that begin together, of which each rung sends the best on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.trial import Trial

__all__ = ["Bracket", "Brackets", "Plan", "hyperband_plan", "ranked"]


@dataclass(frozen=True, slots=True)
class Plan:
    """How a bracket begins.

    Attributes:
        size: Configurations that it begins.
        first: The rung on which it begins them, from 0.
    """

    size: int
    first: int = 0


def hyperband_plan(index: int, n_rungs: int, eta: int) -> Plan:
    """Return the bracket of that number of Hyperband (Li et al. 2018, algorithm 1).

    Bracket s begins `ceil((s_max + 1) / (s + 1) * eta^s)` configurations s rungs below the last
    one, for s = s_max..0, and then again.
    """
    s = n_rungs - 1 - index % n_rungs
    return Plan(-(-n_rungs * eta**s // (s + 1)), n_rungs - 1 - s)


def ranked(trials: list[Trial], history: History) -> list[Trial]:
    """Return the trials with a loss, the best first; those that violate constraints at the end."""

    def key(trial: Trial) -> tuple[float, float, int]:
        loss = inf if trial.loss is None else trial.loss
        return max(history.violation(trial), 0.0), loss, trial.number

    return sorted((t for t in trials if t.loss is not None), key=key)


@dataclass(slots=True)
class Bracket:
    """One bracket of successive halving; its runs are numbers of trials, rung by rung.

    A rung is decided when all its runs are told: the best one in eta of them go on, at least one.
    A run that failed is told and lost.

    Attributes:
        plan: How it begins.
        eta: One in so many goes on.
        number: Its place among all brackets, from 0.
        runs: By rung from the plan's first one, the trials in the order of asking.
        is_closed: Whether it begins no more, though it is not full.
    """

    plan: Plan
    eta: int
    number: int = 0
    runs: list[list[int]] = field(default_factory=list)
    is_closed: bool = False

    @property
    def takes_more(self) -> bool:
        """Whether it has configurations to begin."""
        return not self.is_closed and len(self.runs[0]) < self.plan.size

    def promotion(self, history: History, *, closing: bool = False) -> Trial | None:
        """Return a run whose configuration is to go on now, if there is one.

        Args:
            history: All trials.
            closing: Whether no more configurations may be begun, so that the first rung is decided
                with those that it has.
        """
        if self.takes_more and not closing:
            return None
        for rung, above in pairwise(self.runs):
            trials = [history[number] for number in rung]
            if not all(t.is_told for t in trials):
                return None
            best = ranked(trials, history)[: max(1, len(trials) // self.eta)]
            gone = {history[number].query.configuration for number in above}
            staying = [t for t in best if t.query.configuration not in gone]
            if staying and len(above) < len(best):
                return staying[0]
        return None


class Brackets:
    """All brackets of a study, from the trials in the order of asking.

    A configuration that is new begins in the last bracket, or in the next one if that takes no
    more; one that is not goes on in its own.

    Args:
        n_rungs: Rungs of a full evaluation.
        eta: One in so many goes on.
        plan: How the bracket of each number begins.
    """

    def __init__(self, n_rungs: int, eta: int, plan: Callable[[int], Plan]) -> None:
        self._n_rungs, self._eta, self._plan = n_rungs, eta, plan
        self._brackets: list[Bracket] = []
        self._places: dict[Configuration, tuple[Bracket, int]] = {}
        self._n_entered = 0

    @property
    def places(self) -> Mapping[Configuration, tuple[Bracket, int]]:
        """By configuration, its bracket and the highest of its rungs that it was asked for on."""
        return self._places

    def catch_up(self, history: History) -> None:
        """Enter the trials that were asked for since the last time."""
        for number in range(self._n_entered, len(history)):
            self._enter(history[number])
        self._n_entered = len(history)

    def promotion(self, history: History, *, closing: bool = False) -> Trial | None:
        """Return a run whose configuration is to go on now, that of the oldest bracket first."""
        found = (b.promotion(history, closing=closing) for b in self._brackets)
        return next((trial for trial in found if trial is not None), None)

    def rung_above(self, configuration: Configuration) -> int:
        """Return the rung, from 0, on which a configuration goes on."""
        bracket, k = self._places[configuration]
        return bracket.plan.first + k + 1

    @property
    def first_rung(self) -> int:
        """The rung on which the next new configuration begins."""
        return self._open().plan.first

    def number_of(self, configuration: Configuration) -> int:
        """Return the number of a configuration's bracket, from 0; a new one begins in the next."""
        known = self._places.get(configuration)
        return (known[0] if known else self._open()).number

    def _open(self) -> Bracket:
        """Return the bracket that takes the next new configuration."""
        if self._brackets and self._brackets[-1].takes_more:
            return self._brackets[-1]
        plan = self._plan(len(self._brackets))
        runs: list[list[int]] = [[] for _ in range(plan.first, self._n_rungs)]
        return Bracket(plan, self._eta, len(self._brackets), runs)

    def _enter(self, trial: Trial) -> None:
        configuration = trial.query.configuration
        if configuration in self._places:
            bracket, k = self._places[configuration]
            k += 1
            bracket.is_closed = True
        else:
            bracket, k = self._open(), 0
            if not self._brackets or self._brackets[-1] is not bracket:
                self._brackets.append(bracket)
        bracket.runs[k].append(trial.number)
        self._places[configuration] = bracket, k
