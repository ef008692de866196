"""One plan: candidates, the fantasies of what is under way, the horizon, and what is run next."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.acquisitions.joint_improvement import JointImprovement
from prefect_tune.optimizers.methods.bapi.belief import Belief
from prefect_tune.optimizers.methods.bapi.costs import Overheads
from prefect_tune.optimizers.methods.bapi.horizon import Entry, Horizon, chosen_entry
from prefect_tune.optimizers.methods.bapi.options import Settings
from prefect_tune.optimizers.methods.bapi.stopping import enough_epochs
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.surrogates.kernel import Array

__all__ = ["MOST_PENDING", "Planning", "Prospects"]

MOST_PENDING = 16
"""Trials under way that a plan counts in, the latest."""


@dataclass(frozen=True)
class Prospects:
    """m configurations that may be trained, or are being trained.

    Attributes:
        inputs: Of the process, shape (m, width).
        done: Epochs done, shape (m,).
        targets: Epochs that stretches under way go to, 0 where there is none, shape (m,).
        is_divisible: Which can be trained for fewer than all epochs, shape (m,).
        configuration: From a number to its configuration; None if it cannot be had.
    """

    inputs: Array
    done: NDArray[np.intp]
    targets: NDArray[np.intp]
    is_divisible: NDArray[np.bool_]
    configuration: Callable[[int], Configuration | None]


@dataclass
class Planning:
    """A plan made from a belief.

    Attributes:
        prospects: The candidates, those under way among them.
        belief: In scores and seconds.
        overheads: Seconds besides epochs.
        settings: Of the method.
        best: Score to improve on.
        epsilon: Loss that may be added by ending early.
        longest: Seconds that one training may take.
        quantum: Epochs after which a training is looked at.
        normals: Of fantasies, shape (draws, most that are chosen).
    """

    prospects: Prospects
    belief: Belief
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
        """Seconds that what is under way is expected to take."""
        left = np.maximum(self.prospects.targets - self.prospects.done, 0)
        return float(left @ self.rates)

    def entries(self, budget: float, allowed: NDArray[np.bool_] | None = None) -> list[Entry]:
        """Return the plan of a budget in seconds, among those allowed; it may be empty."""
        improvement, variance = self.improvement()
        return self._horizon(allowed).plan(improvement, variance, budget)

    def improvement(self) -> tuple[JointImprovement, Array]:
        """Return the improvement of what is chosen next to what is under way, and variances.

        The variances are those of all candidates before anything is chosen, shape (m,).
        """
        process = self.belief.process
        rows = self.belief.at(self.prospects.inputs, self.t_max)
        mean, half = process.predict_half(rows)
        kernel, theta, scale = process.process.kernel, process.process.kernel_theta, process.scale
        prior = kernel.variance(theta, rows)
        variance = np.maximum(prior - np.einsum("ij,ij->j", half, half), 1e-12) * scale**2

        def covariance(j: int) -> Array:
            column: Array = kernel.covariance(theta, rows, rows[j : j + 1])[:, 0]
            posterior: Array = (column - half.T @ half[:, j]) * scale**2
            return posterior

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

    def chosen(self, entries: list[Entry], spent: float) -> Entry:
        """Return the entry that is run next, when such a share of the budget is spent."""
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
