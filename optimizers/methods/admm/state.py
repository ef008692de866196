"""Where an ADMM search stands between two asks, and what it knows of the trials so far."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.methods.admm.path_solvers import Counts
from prefect_tune.optimizers.methods.admm.splitting import constraint_penalty
from prefect_tune.optimizers.space.space import Path
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.losses import told_losses
from prefect_tune.optimizers.trials.objective import FailureCost, Objective
from prefect_tune.optimizers.trials.trial import Trial

Array = NDArray[np.floating[Any]]
_UNKNOWN = 2.0
"""A quantity that was not measured counts as twice its bound."""


@dataclass
class AdmmState:
    """All that an ask hands to the next one; the memo is its document.

    Columns of the unit cube are keys as text. What is not listed is at its default.

    Attributes:
        iteration: Iterations finished (t).
        block: The sub-problem at work.
        path: The path that is tuned (z).
        asked: New evaluations of this block.
        draws: Paths drawn in this z-min.
        started_at: Trial number at which this theta-min began.
        new_in_iteration: Evaluations of this iteration.
        units: Positions of hyperparameters (theta), by column.
        delta: Positions of projected integers, by column.
        dual: lambda / rho, by column.
        mu: Multipliers of the constraints, in units of their bounds, by name and bound.
        counts: Pulls and successes of the bandit.
        open: Trials whose outcome has not been counted yet.
        pulled: Those of them that the z-min asked for.
        seen: Trials of this z-min.
        tuned: Paths that had a theta-min.
        theta: Parameters of the process of `path`, where it was fitted.
        fitted: Observations that it was fitted to.
    """

    iteration: int = 0
    block: Literal["start", "theta", "z"] = "start"
    path: Path = ()
    asked: int = 0
    draws: int = 0
    started_at: int = 0
    new_in_iteration: int = 0
    units: dict[str, float] = field(default_factory=dict)
    delta: dict[str, float] = field(default_factory=dict)
    dual: dict[str, float] = field(default_factory=dict)
    mu: dict[str, float] = field(default_factory=dict)
    counts: Counts = field(default_factory=dict)
    open: list[int] = field(default_factory=list)
    pulled: list[int] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    tuned: list[Path] = field(default_factory=list)
    theta: list[float] | None = None
    fitted: int = 0


@dataclass(frozen=True, slots=True)
class PathObservations:
    """Told trials on the scales that ADMM works with.

    Attributes:
        trials: Complete and failed ones, in the order of asking.
        losses: f: the share of the metric's range where it has one, else the distance from the
            best in interquartile ranges, shape (n,).
        quantities: Constrained quantities in units of their bounds, shape (n, M).
        bounds: The bounds in the same units, less the margin: about 1, or 0 for a bound of 0,
            shape (M,).
        constraints: By the same order, what the state calls their multipliers.
        worst_reward_loss: The f from which on a pull earns nothing.
    """

    trials: list[Trial]
    losses: Array
    quantities: Array
    bounds: Array
    constraints: tuple[str, ...]
    worst_reward_loss: float

    def row_of(self) -> dict[int, int]:
        """Return rows by trial number."""
        return {t.number: i for i, t in enumerate(self.trials)}

    def augmented(self, state: AdmmState, rho_g: float) -> Array:
        """Return f and the constraint terms of each trial, shape (n,)."""
        total = self.losses.copy()
        for i, (bound, mu) in enumerate(zip(self.bounds, self.multipliers(state), strict=True)):
            total += constraint_penalty(self.quantities[:, i], bound, mu, rho_g)
        return total

    def multipliers(self, state: AdmmState) -> Array:
        """Return mu of each constraint, 0 for one that came later, shape (M,)."""
        return np.array([state.mu.get(name, 0.0) for name in self.constraints])


def observations(
    history: History, objective: Objective, rule: FailureCost, f_hat: float, margin: float
) -> PathObservations:
    """Return what has been told; a failed trial has the loss of the rule and no quantities.

    Args:
        history: All trials.
        objective: What is minimised, and within which constraints.
        rule: What failed trials count as.
        f_hat: Share of the metric's range from which on a pull earns nothing.
        margin: Share of each bound to stay below it.
    """
    trials, losses = told_losses(history, objective, rule)
    span = objective.upper - objective.lower
    if np.isfinite(span):
        losses, worst = (losses - objective.lower) / span, f_hat
    elif len(losses):
        best = losses.min()
        spread = float(np.subtract(*np.percentile(losses, [75, 25]))) or 1.0
        chance = objective.chance
        reach = f_hat * np.ptp(losses) if chance is None else max(chance - best, 0.0)
        losses, worst = (losses - best) / spread, max(float(reach), 1e-12) / spread
    else:
        worst = f_hat
    quantities, bounds = _quantities(trials, objective)
    names = tuple(f"{c.name}<={c.bound!r}" for c in objective.constraints)
    return PathObservations(trials, losses, quantities, bounds * (1 - margin), names, worst)


def _quantities(trials: list[Trial], objective: Objective) -> tuple[Array, Array]:
    """Return quantities over their bounds; over a typical value where the bound is 0.

    A bound that nothing measured has exceeded is idle: its values are 0, and it changes nothing.
    """
    names = [c.name for c in objective.constraints]
    values = np.full((len(trials), len(names)), np.nan)
    for row, trial in enumerate(trials):
        if trial.evaluation is not None:
            measured = trial.evaluation.constraints
            values[row] = [measured.get(name, np.nan) for name in names]
    bounds = np.array([c.bound for c in objective.constraints])
    units = bounds.copy()
    for i in np.flatnonzero(bounds == 0):
        positive = values[:, i][values[:, i] > 0]
        units[i] = float(np.median(positive)) if len(positive) else 1.0
    values = values / units if names else values
    in_units = (bounds > 0).astype(np.float64)
    is_idle = ~(values > in_units).any(axis=0)
    values[~np.isfinite(values)] = _UNKNOWN
    values[:, is_idle] = 0.0
    return values, in_units
