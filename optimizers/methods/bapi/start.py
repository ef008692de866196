"""The first configurations: successive halving over epochs, or random ones and the best of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Self

from prefect_tune.optimizers.methods.bapi.curves import LearningCurve
from prefect_tune.optimizers.methods.rungs import Begin, Done, GoOn, Wait, n_promoted
from prefect_tune.optimizers.space.configuration import Configuration

_ETA = 3
_SIZES = (27, 15, 9, 6, 3)
"""Of a start, the larger the budget; the first has rungs of 27, 9 and 3."""
_FEW = 9
"""Of so many configurations or fewer, all may be of the start; else half of them."""
_SHARE = 1 / 3
"""Of a budget that the start may take."""


Step = Begin[int] | GoOn[int] | Wait | Done


@dataclass(frozen=True)
class Design:
    """Rungs of epochs, each with as many configurations as go on to it.

    It keeps nothing: its state is a function of the curves in the order of beginning. The first
    configurations that were begun are its own.

    Attributes:
        epochs: Of each rung, rising.
        counts: Configurations on each rung.
    """

    epochs: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    def halving(cls, n: int, t_max: int) -> Self:
        """Return n at a 25th of the epochs, a third of them at three times as many, and so on."""
        epochs, counts = [max(2, round(t_max / 25))], [n]
        while len(epochs) < 3 and epochs[-1] * _ETA < t_max and counts[-1] >= _ETA:
            epochs.append(epochs[-1] * _ETA)
            counts.append(n_promoted(counts[-1], _ETA))
        return cls(tuple(epochs), tuple(counts))

    @classmethod
    def random(cls, n: int, t_max: int, quantum: int) -> Self:
        """Return n for a quantum each, of which the best is trained to the end."""
        if quantum >= t_max:
            return cls((t_max,), (n,))
        return cls((quantum, t_max), (n, 1))

    def next(self, curves: Mapping[Configuration, LearningCurve], *, may_begin: bool) -> Step:
        """Return the next step.

        Args:
            curves: All that were begun, in that order.
            may_begin: Whether the budget allows for new ones.
        """
        own = list(curves.values())[: self.counts[0]]
        if len(own) < self.counts[0] and may_begin:
            return Begin(self.epochs[0])
        entrants = own
        for rung, epochs in enumerate(self.epochs):
            behind = [c for c in entrants if c.done < epochs and not c.is_closed]
            for curve in behind:
                if not curve.is_pending:
                    return GoOn(curve.configuration, epochs)
            if behind:
                return Wait()
            if rung + 1 < len(self.epochs):
                # A full fit needs no going on, and is no match for a few epochs.
                known = [c for c in entrants if c.is_iterative and c.done >= epochs]
                known = [c for c in known if not c.is_infeasible and not c.trouble]
                ranked = sorted(known, key=lambda c: c.loss_at(epochs))
                n = len(known) * self.counts[rung + 1] // self.counts[rung]
                entrants = ranked[: max(1, n)]
        return Done()

    def waiting(self, curves: Mapping[Configuration, LearningCurve]) -> set[Configuration]:
        """Return the configurations that wait here for others to be told; none at the end."""
        is_over = isinstance(self.next(curves, may_begin=False), Done)
        return set() if is_over else set(list(curves)[: self.counts[0]])


def size_of_start(n_epochs: float | None, n_configurations: int | None, t_max: int) -> int:
    """Return how many configurations a start by halving has.

    Args:
        n_epochs: Epochs that the whole budget is worth; None when not known.
        n_configurations: That the whole budget may begin; None for any number.
        t_max: Epochs of a full training.
    """
    few = (
        inf if n_configurations is None else max(n_configurations / 2, min(_FEW, n_configurations))
    )
    for n in _SIZES:
        design = Design.halving(n, t_max)
        added = [b - a for a, b in pairwise((0, *design.epochs))]
        cost = sum(count * epochs for count, epochs in zip(design.counts, added, strict=True))
        if n <= few and (n_epochs is None or cost <= _SHARE * n_epochs):
            return n
    return _SIZES[-1] if n_configurations is None else max(1, min(_SIZES[-1], n_configurations))
