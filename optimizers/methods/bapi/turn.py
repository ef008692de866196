"""One ask of BAPI: one pass of the loop of algorithm 2 (Belakaria et al. 2022)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf, isfinite
from typing import Any, Self

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Reason
from prefect_tune.optimizers.methods.bapi.costs import Overheads, RemainingBudget
from prefect_tune.optimizers.methods.bapi.curves import (
    LearningCurve,
    largest_informative_loss,
    most_telling,
)
from prefect_tune.optimizers.methods.bapi.declaration import Settings
from prefect_tune.optimizers.methods.bapi.learner import CurveBelief, CurveLearner
from prefect_tune.optimizers.methods.bapi.planning import (
    PlannedTraining,
    Planning,
    Prospects,
    Verdict,
    enough_epochs,
    verdict,
)
from prefect_tune.optimizers.methods.rungs import Begin, Done, Promote, Wait, n_promoted
from prefect_tune.optimizers.space.candidate_space import Candidates
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Objective

_ETA = 3
_SIZES = (27, 15, 9, 6, 3)
"""Sizes of a start, larger for larger budgets; the first has rungs of 27, 9 and 3."""
_FEW = 9
"""Number of configurations up to which all may be in the start; of more, half may."""
_SHARE = 1 / 3
"""Share of a budget that the start may take."""


Step = Begin[int] | Promote[int] | Wait | Done


@dataclass(frozen=True)
class Design:
    """Rungs of epochs, rising, each with a number of configurations.

    The first configurations of the study are the design's; their curves show its progress.
    """

    epochs: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    def halving(cls, n: int, t_max: int) -> Self:
        """Return n configurations at 1/25 of the epochs, a third of them at 3/25, etc."""
        epochs, counts = [max(2, round(t_max / 25))], [n]
        while len(epochs) < 3 and epochs[-1] * _ETA < t_max and counts[-1] >= _ETA:
            epochs.append(epochs[-1] * _ETA)
            counts.append(n_promoted(counts[-1], _ETA))
        return cls(tuple(epochs), tuple(counts))

    @classmethod
    def random(cls, n: int, t_max: int, quantum: int) -> Self:
        """Return n configurations for a quantum each; the best one is trained to the end."""
        return cls((t_max,), (n,)) if quantum >= t_max else cls((quantum, t_max), (n, 1))

    def next(self, curves: Mapping[Configuration, LearningCurve], *, may_begin: bool) -> Step:
        """Return the next step, from all curves in the order of their start."""
        own = list(curves.values())[: self.counts[0]]
        if len(own) < self.counts[0] and may_begin:
            return Begin(self.epochs[0])
        entrants = own
        for rung, epochs in enumerate(self.epochs):
            behind = [c for c in entrants if c.done < epochs and not c.is_closed]
            for curve in behind:
                if not curve.is_pending:
                    return Promote(curve.configuration, epochs)
            if behind:
                return Wait()
            if rung + 1 < len(self.epochs):
                # A full fit cannot be resumed, and is not comparable with a few epochs.
                known = [c for c in entrants if c.is_iterative and c.done >= epochs]
                known = [c for c in known if not c.is_infeasible and not c.trouble]
                ranked = sorted(known, key=lambda c: c.loss_at(epochs))
                n = len(known) * self.counts[rung + 1] // self.counts[rung]
                entrants = ranked[: max(1, n)]
        return Done()

    def waiting(self, curves: Mapping[Configuration, LearningCurve]) -> set[Configuration]:
        """Return the configurations that wait for a rung to be decided; empty at the end."""
        is_over = isinstance(self.next(curves, may_begin=False), Done)
        return set() if is_over else set(list(curves)[: self.counts[0]])


def size_of_start(n_epochs: float | None, n_configurations: int | None, t_max: int) -> int:
    """Return the size of a start by halving, given the epochs and configurations affordable."""
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


_LEAST_CURVES = 4
"""Number of curves with a loss that a plan needs."""
_N_BEST = 4
"""Number of best configurations near which new candidates are drawn."""
_EPSILON_OF_SPREAD = 0.02
"""Tolerance for a metric without a range, as a share of the interquartile range of the losses."""
_LEAST_EPSILON = 1e-6
_WORTHWHILE = 0.1
"""Least gain of a planned training in studies without a time limit, as a share of epsilon."""
_STARTED = Reason("start", "started: a new configuration")
_PROMOTED = Reason("start", "resumed: among the best after as many epochs")
_STILL_WINS = Reason("training", "resumed: it may still win")
_PLANNED = Reason("plan", "started: part of the best plan for the rest of the budget")
_THAWED = Reason("plan", "resumed: part of the best plan for the rest of the budget")
_ENDED = Reason("end", "resumed: the best so far, trained to the end")


@dataclass(frozen=True, slots=True)
class Order:
    """A training to request, up to an epoch; without a configuration, a new one is drawn."""

    configuration: Configuration | None
    epochs: int
    because: Reason


@dataclass
class BapiTurn:
    """The state of one ask, and the branches of the loop.

    Attributes:
        memo: Memo of the last ask, updated into the memo of this one.
        pool: Function from the best configurations to new candidates.
    """

    curves: Mapping[Configuration, LearningCurve]
    memo: dict[str, Any]
    history: History
    budget: Budget
    objective: Objective
    settings: Settings
    t_max: int
    design: Design
    learner: CurveLearner
    normals: Array
    pool: Callable[[Candidates, Generator], Candidates]
    rng: Generator

    def order(self) -> Order | None:
        """Return the next training of the loop; None if there is none to request.

        The trainings of line 7 run between asks, so an ask continues where the told trials left the
        loop.
        """
        return self.initial() or self.evaluation() or self.plan() or self.end()

    def initial(self) -> Order | None:
        """Line 1: return the next initial training; None if all have ended or are pending."""
        step = self.design.next(self.curves, may_begin=self.remaining.may_begin)
        least = min(_LEAST_CURVES, self.design.counts[0])
        if isinstance(step, Wait | Done) and self.n_known < least and self.remaining.may_begin:
            step = Begin(self.design.epochs[0])
        if isinstance(step, Wait | Done):
            return None
        configuration = step.configuration if isinstance(step, Promote) else None
        epochs = self.remaining.epochs_by_measured_rates(configuration, step.level)
        if configuration is not None:
            return Order(configuration, epochs, _PROMOTED) if epochs else None
        # A random model may not train in epochs; the plan knows which ones do.
        return Order(None, epochs, _STARTED) if epochs == step.level else None

    def evaluation(self) -> Order | None:
        """Line 7, algorithm 5: return the first told training that should continue."""
        targets: dict[str, int] = dict(self.memo.get("targets", {}))
        told = [n for n in sorted(map(int, targets)) if self.history[n].is_told]
        if not told:
            return None
        belief = self.learner.recall(list(self.curves.values()), self.memo)
        self.memo["targets"] = targets
        for number in told:
            target = targets.pop(str(number))
            curve = self.curves[self.history[number].query.configuration]
            if curve.is_closed or curve.is_pending:
                continue
            row = self._rows([curve])
            enough, outcome = self._verdict(curve, row, target, belief)
            if outcome != "continues":
                # Verdicts on trainings resumed since then are dropped.
                last = {
                    str(c.trials[-1].number) for c in self.curves.values() if c.done < self.t_max
                }
                kept = {n: v for n, v in self.memo.get("verdicts", {}).items() if n in last}
                self.memo["verdicts"] = {**kept, str(curve.trials[-1].number): outcome}
                continue
            epochs = self.remaining.epochs(
                curve.done,
                enough,
                rate=float(belief.seconds(row)[0]),
                pending_seconds=self._pending_seconds(belief),
            )
            if epochs:
                return self._stretch(curve.configuration, curve.done, epochs, _STILL_WINS)
        return None

    def plan(self) -> Order | None:
        """Lines 5, 6 and 9: fit, plan the rest of the budget, and return the choice of the plan."""
        if not self.n_known:
            return None
        belief, kept = self.learner.learn(list(self.curves.values()), self.memo, self.rng)
        self.memo |= kept
        planning = self._planning(belief)
        horizon = planning.entries(self.remaining.seconds - planning.pending_seconds)
        if not self.remaining.may_begin:
            horizon = self._worthwhile(horizon, planning)
        if not horizon:
            return None
        entry = planning.chosen(horizon, self.remaining.spent_share)
        configuration = planning.prospects.configuration(entry.number)
        done = int(planning.prospects.done[entry.number])
        because = _THAWED if done else _PLANNED
        if done:
            self.memo["thawed"] = self.memo.get("thawed", 0) + 1
        if not planning.prospects.is_divisible[entry.number]:
            return Order(configuration, entry.epochs, because)
        return self._stretch(configuration, done, entry.epochs, because)

    def end(self) -> Order | None:
        """Return the best training, up to the last epoch, if none has reached it."""
        if self.remaining.may_begin or self.history.complete:
            return None
        going = [c for c in self.curves.values() if c.epochs and not c.is_closed]
        if not going or any(c.is_pending for c in self.curves.values()):
            return None
        best = min(going, key=lambda c: c.loss)
        epochs = self.remaining.epochs_by_measured_rates(best.configuration, self.t_max)
        return Order(best.configuration, epochs, _ENDED) if epochs else None

    @property
    def remaining(self) -> RemainingBudget:
        """Lines 3, 4 and 10: the rest of the budget."""
        return RemainingBudget(self.budget, self.curves.values())

    @property
    def quantum(self) -> int:
        """Epochs between two checks of a training, p of algorithm 5."""
        return max(1, round(self.settings.p * self.t_max))

    @property
    def first_look(self) -> int:
        """Epochs before the first check of a new training."""
        if not self.settings.looks_early:
            return self.quantum
        return min(self.quantum, max(2, round(self.t_max / 25)))

    @cached_property
    def n_known(self) -> int:
        """Number of configurations with a known loss."""
        return sum(bool(c.epochs) for c in self.curves.values())

    @cached_property
    def least_loss(self) -> float:
        """Minus y_best: the least feasible loss, or the least loss if none is feasible."""
        ended = [t for t in self.history if t.loss is not None]
        feasible = [t for t in ended if self.history.violation(t) <= 0]
        return min((t.loss for t in feasible or ended if t.loss is not None), default=inf)

    @cached_property
    def epsilon(self) -> float:
        """Epsilon of equation 8: loss that ending a training early may add."""
        if self.settings.epsilon is not None:
            return self.settings.epsilon
        width = self.objective.upper - self.objective.lower
        if isfinite(width):
            return self.settings.epsilon_share * width
        losses = np.array([c.loss for c in self.curves.values() if c.epochs])
        if not len(losses):
            return _LEAST_EPSILON
        capped = np.minimum(losses, largest_informative_loss(losses, self.objective))
        low, high = np.quantile(capped, (0.25, 0.75))
        return max(_EPSILON_OF_SPREAD * float(high - low), _LEAST_EPSILON)

    def _stretch(
        self, configuration: Configuration | None, done: int, target: int, because: Reason
    ) -> Order:
        """Algorithm 5, line 6: return the training up to its next check, and record its target."""
        self.memo.setdefault("targets", {})
        self.memo["targets"] = {**self.memo["targets"], str(len(self.history)): target}
        least = self.remaining.epochs_worth_a_look(configuration, self.t_max)
        ahead = max(self.quantum if done else self.first_look, least)
        return Order(configuration, min(target, done + ahead), because)

    def _verdict(
        self, curve: LearningCurve, row: Array, target: int, belief: CurveBelief
    ) -> tuple[int, Verdict]:
        if not self.settings.early_stopping:
            return target, "finished" if curve.done >= target else "continues"
        expected = belief.curve(row, is_known=True)
        enough = enough_epochs(expected, self.epsilon, curve.done)
        rows, epochs = np.repeat(row, 2, axis=0), np.array([enough, curve.done])
        _, deviation = belief.outcome(rows, epochs)
        return enough, verdict(
            done=curve.done,
            target=enough,
            mean=belief.scores.of_loss(float(expected[enough - 1])),
            deviation=float(deviation[0]),
            deviation_now=float(deviation[1]),
            best=belief.scores.of_loss(self.least_loss),
            tau=self.settings.tau,
            sure=self.settings.sure,
        )

    def _pending_seconds(self, belief: CurveBelief) -> float:
        pending = [c for c in self.curves.values() if c.is_pending]
        if not pending:
            return 0.0
        left = np.array([max(c.target - c.done, 0) for c in pending])
        return float(left @ belief.seconds(self._rows(pending)))

    def _rows(self, curves: list[LearningCurve]) -> Array:
        return self.learner.inputs.of(self.learner.inputs.encode(c.configuration for c in curves))

    def _planning(self, belief: CurveBelief) -> Planning:
        return Planning(
            prospects=self._prospects(),
            belief=belief,
            overheads=Overheads.of(list(self.curves.values())),
            settings=self.settings,
            best=belief.scores.of_loss(self.least_loss),
            epsilon=self.epsilon,
            longest=self.remaining.longest,
            quantum=self.quantum,
            normals=self.normals,
        )

    def _prospects(self) -> Prospects:
        pending = [c for c in self.curves.values() if c.is_pending]
        told = most_telling([c for c in self.curves.values() if not c.is_pending])
        waits = self.design.waiting(self.curves)
        begun = [
            c for c in told if not c.is_closed and c.is_iterative and c.configuration not in waits
        ]
        known = [c for c in (*told, *pending) if c.epochs]
        best = self.learner.inputs.encode(
            c.configuration for c in sorted(known, key=lambda c: c.loss)[:_N_BEST]
        )
        may_begin = self.remaining.may_begin
        new = self._unlike(self.pool(best, self.rng)) if may_begin else best[:0]
        return Prospects.of([*begun, *pending], new, self.learner, asked=self.curves)

    def _unlike(self, new: Candidates) -> Candidates:
        inputs = self.learner.inputs
        begun = inputs.of(inputs.encode(self.curves))
        rows = np.vstack([begun, inputs.of(new)])
        _, first = np.unique(rows.round(9), axis=0, return_index=True)
        return new[np.sort(first[first >= len(begun)]) - len(begun)]

    def _worthwhile(
        self, entries: list[PlannedTraining], planning: Planning
    ) -> list[PlannedTraining]:
        """Entries with enough gain, for studies without a time limit."""
        if not entries:
            return []
        rows = planning.prospects.inputs[[e.number for e in entries]]
        improvement = planning.belief.improvement(rows, self.t_max, planning.best)
        gains = planning.belief.scores.loss_of_gain(improvement, planning.best)
        return [
            e for e, gain in zip(entries, gains, strict=True) if gain >= _WORTHWHILE * self.epsilon
        ]
