"""The plan of the remaining budget: algorithms 3 and 4, and the stopping rule of algorithm 5."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.acquisitions.expected_improvement import (
    JointImprovement,
    log_expected_improvement,
)
from prefect_tune.optimizers.methods.bapi.costs import Overheads, affordable
from prefect_tune.optimizers.methods.bapi.curves import LearningCurve
from prefect_tune.optimizers.methods.bapi.declaration import Choice, Settings
from prefect_tune.optimizers.methods.bapi.learner import CurveBelief, CurveLearner
from prefect_tune.optimizers.space.candidate_space import Candidates
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.unit_interval import Array


@dataclass(frozen=True, slots=True)
class PlannedTraining:
    """One entry of a plan: a candidate, its total epochs, and the seconds of the new ones."""

    number: int
    epochs: int
    seconds: float


@dataclass(frozen=True)
class Horizon:
    """A plan for m candidates as far as the budget reaches (algorithm 4, NMO).

    Attributes:
        allowed, is_divisible: Candidates that may be planned, and those that can be trained for
            fewer than all epochs.
        overheads: Function from a candidate's number to its seconds in addition to epochs.
        least_step: Fewest epochs of a training, unless fewer are left.
    """

    done: NDArray[np.intp]
    allowed: NDArray[np.bool_]
    enough: Callable[[int], int | None]
    rates: Array
    overheads: Callable[[int], float]
    least_step: int
    is_divisible: NDArray[np.bool_]
    t_max: int
    most: int
    longest: float = inf

    def plan(
        self, improvement: JointImprovement, fallback: Array, budget: float
    ) -> list[PlannedTraining]:
        """Return the entries of a budget in seconds, in the order of choosing.

        `improvement` already includes pending trials. `fallback`, shape (m,), ranks candidates if
        all improvements are 0.
        """
        if budget <= 0:
            return []
        entries: list[PlannedTraining] = []
        # Near its end, the budget affords first epochs of few candidates; only these need a t_opt.
        least = np.where(self.is_divisible, 1, self.t_max - self.done)
        can_begin = self.rates * least <= min(budget, self.longest)
        allowed, left = self.allowed.copy(), budget
        while len(entries) < self.most and left > 0:
            eligible = allowed if entries else allowed & can_begin
            if not eligible.any():
                break
            gains = improvement.gains()
            scores = gains if gains[eligible].max() > 0 else fallback
            j = int(np.argmax(np.where(eligible, scores, -inf)))
            allowed[j] = False
            entry = self._entry(j)
            if entry is not None and entry.seconds > self.longest:
                entry = self._clipped(j, self.longest)
            if entry is None:
                continue
            if entry.seconds > left:
                if entries:
                    break
                clipped = self._clipped(j, left)
                if clipped is None:
                    continue
                return [clipped]
            entries.append(entry)
            left -= entry.seconds
            if len(entries) < self.most:
                improvement.choose(j)
        return entries

    def _entry(self, j: int) -> PlannedTraining | None:
        done, enough = int(self.done[j]), self.enough(j)
        if enough is None or (done and enough <= done):
            return None
        epochs = max(enough, min(self.t_max, done + self.least_step))
        if not self.is_divisible[j]:
            epochs = self.t_max
        return PlannedTraining(
            j, epochs, float(self.rates[j]) * (epochs - done) + self.overheads(j)
        )

    def _clipped(self, j: int, left: float) -> PlannedTraining | None:
        seconds, rate = left - self.overheads(j), float(self.rates[j])
        epochs = affordable(seconds, rate, done=int(self.done[j]), target=self.t_max)
        return PlannedTraining(j, epochs, left) if epochs and self.is_divisible[j] else None


def chosen_entry(
    entries: list[PlannedTraining],
    means: Array,
    deviations: Array,
    best: float,
    *,
    choice: Choice,
    spent: float,
) -> int:
    """Return the index of the entry to run next (algorithm 2, line 6).

    Expected scores after the planned epochs have these means and deviations, shape (k,). The choice
    is by improvement per cost, or by cost cooled by the budget spent (Lee et al. 2020).
    """
    power = 1.0 if choice == "per_cost" else 1.0 - spent
    costs = np.maximum([e.seconds for e in entries], 1e-9)
    # Improvement is defined for losses, so scores change sign.
    worth = log_expected_improvement(-means, np.maximum(deviations, 1e-12), -best)
    return int(np.argmax(worth - power * np.log(costs)))


Verdict = Literal["continues", "finished", "stopped"]


def enough_epochs(curve: Array, epsilon: float, done: int = 0) -> int:
    """Return t_opt, at least `done`: the first epoch within epsilon of the final loss (eq. 8)."""
    near = curve <= curve[-1] + epsilon
    return max(int(near.argmax()) + 1, done)


def verdict(
    *,
    done: int,
    target: int,
    mean: float,
    deviation: float,
    deviation_now: float,
    best: float,
    tau: float,
    sure: float,
) -> Verdict:
    """Return whether a training continues (algorithm 5, line 5).

    A training is finished after `target` epochs, t_opt. It is stopped if its mean score there is
    certain enough and not better than the best. A score is certain enough if its deviation is at
    most `tau` times `deviation_now`, or if the mean is `sure` deviations behind. The paper's rule
    uses tau alone, which lets hopeless trainings continue if curves have little noise.
    """
    if done >= target:
        return "finished"
    is_certain = deviation <= tau * deviation_now or best - mean >= sure * deviation
    return "stopped" if mean <= best and is_certain else "continues"


MOST_PENDING = 16
"""Largest number of pending trials that a plan considers; the latest ones count."""


@dataclass(frozen=True)
class Prospects:
    """m configurations that may be trained or are being trained.

    Attributes:
        targets: Target epochs of pending trainings, 0 for the others, shape (m,).
        is_divisible: Candidates that can be trained for fewer than all epochs, shape (m,).
    """

    inputs: Array
    done: NDArray[np.intp]
    targets: NDArray[np.intp]
    is_divisible: NDArray[np.bool_]
    configuration: Callable[[int], Configuration | None]

    @classmethod
    def of(
        cls,
        begun: Sequence[LearningCurve],
        new: Candidates,
        learner: CurveLearner,
        asked: Container[Configuration],
    ) -> Self:
        """Return begun trainings, and new candidates that decode into none of `asked`."""
        inputs, zeros = learner.inputs, [0] * len(new)
        pool = inputs.encode(c.configuration for c in begun).joined(new)
        known: dict[int, Configuration | None] = {i: c.configuration for i, c in enumerate(begun)}

        def configuration(j: int) -> Configuration | None:
            if j not in known:
                decoded = inputs.candidates.decode(pool, j)
                known[j] = None if decoded in asked else decoded
            return known[j]

        return cls(
            inputs=inputs.of(pool),
            done=np.array([*(c.done for c in begun), *zeros], dtype=np.intp),
            targets=np.array(
                [*(c.target if c.is_pending else 0 for c in begun), *zeros], dtype=np.intp
            ),
            is_divisible=learner.trains_in_epochs(pool),
            configuration=configuration,
        )


@dataclass
class Planning:
    """A plan made from a belief.

    Attributes:
        epsilon: Loss that may be added by ending early.
        quantum: Epochs between two checks of a training.
        normals: Normal draws of imagined outcomes, shape (draws, largest number of choices).
    """

    prospects: Prospects
    belief: CurveBelief
    overheads: Overheads
    settings: Settings
    best: float
    epsilon: float
    longest: float
    quantum: int
    normals: Array
    _enough: dict[int, int] = field(default_factory=dict)

    @property
    def t_max(self) -> int:
        """Epochs of a full training."""
        return self.belief.t_max

    @cached_property
    def rates(self) -> Array:
        """Seconds of an epoch, shape (m,)."""
        return self.belief.seconds(self.prospects.inputs)

    @property
    def pending_seconds(self) -> float:
        """Expected remaining seconds of pending trainings."""
        left = np.maximum(self.prospects.targets - self.prospects.done, 0)
        return float(left @ self.rates)

    def entries(
        self, budget: float, allowed: NDArray[np.bool_] | None = None
    ) -> list[PlannedTraining]:
        """Return the plan of a budget in seconds, restricted to `allowed`; may be empty."""
        improvement, variance = self.improvement()
        return self._horizon(allowed).plan(improvement, variance, budget)

    def improvement(self) -> tuple[JointImprovement, Array]:
        """Return the joint improvement given pending trainings, and prior variances, shape (m,)."""
        process = self.belief.process
        rows = self.belief.at(self.prospects.inputs, self.t_max)
        mean, half = process.predict_half(rows)
        kernel, theta, scale = process.process.kernel, process.process.kernel_theta, process.scale
        prior = kernel.variance(theta, rows)
        variance = np.maximum(prior - np.einsum("ij,ij->j", half, half), 1e-12) * scale**2

        def covariance(j: int) -> Array:
            column: Array = kernel.covariance(theta, rows, rows[j : j + 1])[:, 0]
            return (column - half.T @ half[:, j]) * scale**2

        improvement = JointImprovement(mean, variance, covariance, self.best, self.normals)
        for j in np.flatnonzero(self.prospects.targets)[-MOST_PENDING:]:
            improvement.choose(int(j))
        return improvement, variance

    def _horizon(self, allowed: NDArray[np.bool_] | None = None) -> Horizon:
        is_free = self.prospects.targets == 0
        return Horizon(
            done=self.prospects.done,
            allowed=is_free if allowed is None else is_free & allowed,
            enough=self.enough,
            rates=self.rates,
            overheads=self._overhead,
            least_step=self.quantum,
            is_divisible=self.prospects.is_divisible,
            t_max=self.t_max,
            most=self.settings.horizon,
            longest=self.longest,
        )

    def chosen(self, entries: list[PlannedTraining], spent: float) -> PlannedTraining:
        """Return the entry to run next, at this spent share of the budget."""
        numbers = np.array([e.number for e in entries])
        epochs = np.array([e.epochs for e in entries])
        means, deviations = self.belief.predict(self.prospects.inputs[numbers], epochs)
        choice = self.settings.choice
        place = chosen_entry(entries, means, deviations, self.best, choice=choice, spent=spent)
        return entries[place]

    def enough(self, j: int) -> int | None:
        """Return t_opt of a candidate, at least its epochs done; None if it cannot be trained."""
        if self.prospects.configuration(j) is None:
            return None
        if not self.prospects.is_divisible[j]:
            return self.t_max
        if j not in self._enough:
            done = int(self.prospects.done[j])
            curve = self.belief.curve(self.prospects.inputs[j : j + 1], is_known=done > 0)
            self._enough[j] = enough_epochs(curve, self.epsilon, done)
        return self._enough[j]

    def _overhead(self, j: int) -> float:
        configuration = self.prospects.configuration(j)
        if configuration is None:
            return 0.0
        return self.overheads.seconds(
            configuration, int(self.prospects.done[j]), float(self.rates[j])
        )
