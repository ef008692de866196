"""BAPI's initial design, the plan for the remaining budget, and the rule that ends training.

`Design` implements line 1 of algorithm 2, `Planning` algorithms 3 and 4, and `verdict` the rule of
algorithm 5.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.methods.bapi.belief import CurveBelief, CurveLearner
from prefect_tune.optimizers.methods.bapi.curves import LearningCurve
from prefect_tune.optimizers.methods.declarations import BracketOptions
from prefect_tune.optimizers.methods.halving import n_promoted
from prefect_tune.optimizers.search.improvement import (
    N_SOBOL,
    JointImprovement,
    log_expected_improvement,
    sobol_normals,
)
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.vectors import ROUNDING, Array, Candidates

_ETA = BracketOptions().eta
"""One in three configurations is promoted, as in halving. The initial design may take a third
of the budget."""
_FIRST_SHARE = 1 / 25
"""Fraction of the epochs after which a new training run is first checked."""


def first_epochs(t_max: int) -> int:
    """Return the number of epochs after which a new training run is first checked."""
    return max(2, round(_FIRST_SHARE * t_max))


@dataclass(frozen=True, slots=True)
class Begin:
    """Start a new configuration, up to an epoch."""

    epochs: int


@dataclass(frozen=True, slots=True)
class Promote:
    """Train a configuration up to a later epoch."""

    configuration: Configuration
    epochs: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until a pending trial ends. In the meantime, the method may start planned training."""


@dataclass(frozen=True, slots=True)
class Done:
    """All steps are done."""


Step = Begin | Promote | Wait | Done


@dataclass(frozen=True)
class Design:
    """The initial design: rungs of epochs, each with a number of configurations.

    The first configurations of the study form the design.

    Attributes:
        epochs: Epochs of the rungs, in increasing order.
        counts: Number of configurations on each rung.
    """

    epochs: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    def halving(cls, n: int, t_max: int) -> Self:
        """Return a design with n configurations at 1/25 of the epochs, n / 3 at 3/25, and so on."""
        epochs, counts = [first_epochs(t_max)], [n]
        while len(epochs) < _ETA and epochs[-1] * _ETA < t_max and counts[-1] >= _ETA:
            epochs.append(epochs[-1] * _ETA)
            counts.append(n_promoted(counts[-1], _ETA))
        return cls(tuple(epochs), tuple(counts))

    @classmethod
    def random(cls, n: int, t_max: int, quantum: int) -> Self:
        """Return a design with n configurations at `quantum` epochs and the best at all epochs."""
        return cls((t_max,), (n,)) if quantum >= t_max else cls((quantum, t_max), (n, 1))

    @classmethod
    def affordable(cls, n_epochs: float, n_configurations: float, t_max: int) -> Self:
        """Return the largest affordable halving design, with 27, 9 or 3 configurations.

        A design with 27 or 9 configurations may use at most a third of the affordable epochs and
        half of the affordable configurations.
        """
        for n in (_ETA**3, _ETA**2):
            design = cls.halving(n, t_max)
            added = [b - a for a, b in pairwise((0, *design.epochs))]
            cost = sum(count * epochs for count, epochs in zip(design.counts, added, strict=True))
            if _ETA * cost <= n_epochs and 2 * n <= n_configurations:
                return design
        return cls.halving(max(1, int(min(_ETA, n_configurations))), t_max)

    def next(self, curves: Mapping[Configuration, LearningCurve], *, may_begin: bool) -> Step:
        """Return the next step of the design, given all curves in the order of `curves_of`."""
        entrants = list(curves.values())[: self.counts[0]]
        if len(entrants) < self.counts[0] and may_begin:
            return Begin(self.epochs[0])
        for rung, epochs in enumerate(self.epochs):
            behind = [c for c in entrants if c.done < epochs and not c.is_closed]
            for curve in behind:
                if not curve.is_pending:
                    return Promote(curve.configuration, epochs)
            if behind:
                return Wait()
            if rung + 1 < len(self.epochs):
                # A full fit cannot be resumed, and cannot be compared with a few epochs.
                known = [c for c in entrants if c.is_iterative and c.done >= epochs]
                known = [c for c in known if not c.is_infeasible and not c.trouble]
                ranked = sorted(known, key=lambda c: c.loss_at(epochs))
                n = len(known) * self.counts[rung + 1] // self.counts[rung]
                entrants = ranked[: max(1, n)]
        return Done()

    def waiting(self, curves: Mapping[Configuration, LearningCurve]) -> set[Configuration]:
        """Return the configurations of the design; empty if the design is complete."""
        is_over = isinstance(self.next(curves, may_begin=False), Done)
        return set() if is_over else set(list(curves)[: self.counts[0]])


@dataclass(frozen=True, slots=True)
class Remaining:
    """The remaining budget (B_r), from lines 3, 4 and 10 of algorithm 2.

    Attributes:
        seconds: Worker-seconds left after all pending training runs; inf without a limit.
        longest: Seconds that one training run may take, at most one worker's share of the remaining
            budget.
        rate: Mean seconds per epoch; None before any run time is known.
    """

    seconds: float
    longest: float
    rate: float | None

    @classmethod
    def of(cls, budget: Budget, curves: Collection[LearningCurve]) -> Self:
        """Return the budget that remains after the pending training runs in `curves`.

        A pending epoch costs the curve's seconds per epoch or, if unknown, the mean over all
        curves.
        """
        rates = [c.rate for c in curves if c.rate is not None]
        rate = float(np.mean(rates)) if rates else None
        total = inf if budget.seconds_left is None else budget.seconds_left
        pending = sum(
            (c.rate or rate or 0.0) * max(c.target - c.done, 0) for c in curves if c.is_pending
        )
        share = total / max(budget.n_workers, 1)
        return cls(total - pending, min(total - pending, share), rate)

    def epochs(self, curve: LearningCurve | None, target: int) -> int:
        """Return the last epoch, up to `target`, that the remaining time allows; 0 if none."""
        done, rate = (curve.done, curve.rate) if curve else (0, None)
        rate = rate or self.rate
        if rate is None:
            return target if self.seconds > 0 else 0
        new = int(min(target - done, self.longest / rate))
        return done + new if new >= 1 else 0


def enough_epochs(curve: Array, epsilon: float, done: int = 0) -> int:
    """Return t_opt, at least `done`: the first epoch within epsilon of the final loss (eq. 8)."""
    near = curve <= curve[-1] + epsilon
    return max(int(near.argmax()) + 1, done)


Verdict = Literal["continues", "finished", "stopped"]

_TAU = 2.0
_SURE = 3.0
"""Number of standard deviations below the best score at which an expected score is certainly
worse."""


def verdict(
    *,
    done: int,
    target: int,
    mean: float,
    deviation: float,
    deviation_now: float,
    best: float,
    is_paper: bool,
) -> Verdict:
    """Return whether training continues (algorithm 5, line 5).

    Training is finished after `target` epochs (t_opt). Training is stopped if the predicted score
    after `target` epochs is not better than `best`, and the prediction is certain. The prediction
    is certain if `deviation` is at most tau times `deviation_now`, or if `mean` is three deviations
    worse than `best`. The paper's rule uses only tau, so hopeless training continues if curves have
    little noise.

    Args:
        done: Number of epochs done.
        target: Optimal number of epochs t_opt.
        mean: Predicted mean score after `target` epochs.
        deviation: Standard deviation of the score after `target` epochs.
        deviation_now: Standard deviation of the score after `done` epochs.
        best: Best score of all configurations.
        is_paper: Whether to use the paper's rule.
    """
    if done >= target:
        return "finished"
    is_certain = deviation <= _TAU * deviation_now
    is_certain |= not is_paper and best - mean >= _SURE * deviation
    return "stopped" if mean <= best and is_certain else "continues"


@dataclass(frozen=True, slots=True)
class PlannedTraining:
    """One entry of a plan.

    Attributes:
        number: Number that identifies the candidate.
        epochs: Epoch up to which the candidate is trained.
        seconds: Predicted run time of the new epochs.
    """

    number: int
    epochs: int
    seconds: float


@dataclass(frozen=True)
class Prospects:
    """The m candidates for training, including pending candidates.

    Attributes:
        done: Epochs done, shape (m,).
        targets: Target epochs of pending candidates, 0 for other candidates, shape (m,).
        is_divisible: Whether candidates can be trained for fewer than all epochs, shape (m,).
        rates: Predicted seconds per epoch, shape (m,).
        enough: Function that maps a candidate's number to t_opt, or to None if the candidate cannot
            run.
        t_max: Number of epochs in a full training run.
    """

    done: NDArray[np.intp]
    targets: NDArray[np.intp]
    is_divisible: NDArray[np.bool_]
    rates: Array
    enough: Callable[[int], int | None]
    t_max: int

    def plan(
        self,
        improvement: JointImprovement,
        fallback: Array,
        remaining: Remaining,
        *,
        horizon: int,
        quantum: int,
        is_paper: bool,
    ) -> list[PlannedTraining]:
        """Return the entries of a plan, in the order of choice (algorithm 4, NMO).

        Args:
            improvement: Joint improvement, which already includes pending candidates.
            fallback: Values that rank the candidates if all improvements are 0, shape (m,).
            remaining: Budget left after pending training runs.
            horizon: Largest number of entries.
            quantum: Smallest number of new epochs in a training run.
            is_paper: Whether resumed training runs may have fewer new epochs, as in the paper.
        """
        # Compute t_opt only for candidates whose next epoch is affordable.
        least = np.where(self.is_divisible, 1, self.t_max - self.done)
        allowed = (self.targets == 0) & (self.rates * least <= remaining.longest)
        entries, left = list[PlannedTraining](), remaining.seconds
        while len(entries) < horizon and left > 0 and allowed.any():
            gains = improvement.gains()
            ranked = gains if gains[allowed].max() > 0 else fallback
            j = int(np.argmax(np.where(allowed, ranked, -inf)))
            allowed[j] = False
            done, rate, enough = int(self.done[j]), float(self.rates[j]), self.enough(j)
            if enough is None or (done and enough <= done):
                continue
            wanted = max(enough, min(self.t_max, quantum if is_paper else done + quantum))
            epochs = done + int(min(wanted - done, remaining.longest / rate))
            seconds = rate * (epochs - done)
            if entries and seconds > left:
                break
            entries.append(PlannedTraining(j, epochs, seconds))
            left -= seconds
            improvement.choose(j)
        return entries


def chosen_entry(
    entries: Sequence[PlannedTraining], means: Array, deviations: Array, best: float
) -> PlannedTraining:
    """Return the entry of largest expected improvement per second (algorithm 2, line 6).

    Args:
        entries: The k entries of the plan.
        means: Predicted mean scores after the planned epochs, shape (k,).
        deviations: Standard deviations of the predicted scores, shape (k,).
        best: Best score so far.
    """
    log_seconds = np.log([e.seconds for e in entries])
    # Improvement is defined for losses, so scores change sign.
    worth = log_expected_improvement(-means, deviations, -best)
    return entries[int(np.argmax(worth - log_seconds))]


class Planning:
    """Candidates for a plan: started configurations, including pending ones, and new ones.

    Attributes:
        best: Score to improve on.
        epsilon: Increase in loss accepted for ending training early.
    """

    def __init__(
        self,
        begun: Sequence[LearningCurve],
        new: Candidates,
        learner: CurveLearner,
        belief: CurveBelief,
        *,
        best: float,
        epsilon: float,
    ) -> None:
        self.belief, self.best, self.epsilon = belief, best, epsilon
        self._begun, self._candidates = begun, learner.inputs.candidates
        self._pool = learner.inputs.encode(c.configuration for c in begun).joined(new)
        self.inputs = learner.inputs.of(self._pool)
        fresh = [0] * len(new)
        targets = [c.target if c.is_pending else 0 for c in begun]
        self.prospects = Prospects(
            done=np.array([*(c.done for c in begun), *fresh], dtype=np.intp),
            targets=np.array([*targets, *fresh], dtype=np.intp),
            is_divisible=learner.trains_in_epochs(self._pool),
            rates=belief.seconds(self.inputs),
            enough=self.enough,
            t_max=belief.t_max,
        )

    def configuration(self, j: int) -> Configuration | None:
        """Return the configuration of candidate j; None if the configuration is forbidden."""
        if j < len(self._begun):
            return self._begun[j].configuration
        return self._candidates.decode(self._pool, j)

    def enough(self, j: int) -> int | None:
        """Return t_opt of candidate j, at least the epochs done; None if j is forbidden."""
        if self.configuration(j) is None:
            return None
        if not self.prospects.is_divisible[j]:
            return self.belief.t_max
        done = int(self.prospects.done[j])
        curve = self.belief.curve(self.inputs[j : j + 1], is_known=done > 0)
        return enough_epochs(curve, self.epsilon, done)

    def improvement(self, horizon: int, seed: int) -> tuple[JointImprovement, Array]:
        """Return the joint improvement given pending training runs, and the predicted variances.

        The outcomes of `horizon` further choices are simulated with `seed`. The variances of the
        candidates' scores have shape (m,). Improvements and variances are in units of the spread of
        the scores.
        """
        process = self.belief.process
        rows = self.belief.at(self.inputs, self.belief.t_max)
        mean, half = process.predict_half(rows)
        kernel, theta = process.process.kernel, process.process.kernel_theta
        prior = kernel.variance(theta, rows)
        variance = np.maximum(prior - np.einsum("ij,ij->j", half, half), ROUNDING * prior)

        def covariance(j: int) -> Array:
            column: Array = kernel.covariance(theta, rows, rows[j : j + 1])[:, 0]
            return column - half.T @ half[:, j]

        pending = np.flatnonzero(self.prospects.targets)
        normals = sobol_normals(N_SOBOL, horizon + len(pending), np.random.default_rng(seed))
        above = (mean - self.best) / process.scale
        improvement = JointImprovement(above, variance, covariance, 0.0, normals)
        for j in pending:
            improvement.choose(int(j))
        return improvement, variance

    def chosen(self, entries: Sequence[PlannedTraining]) -> PlannedTraining:
        """Return the entry to run next (see `chosen_entry`)."""
        rows = self.inputs[[e.number for e in entries]]
        means, deviations = self.belief.predict(rows, np.array([e.epochs for e in entries]))
        return chosen_entry(entries, means, deviations, self.best)
