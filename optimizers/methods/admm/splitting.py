"""ADMM's operator splitting: the arithmetic, the state of a search, and the trials in ADMM's units.

Liu, Ram et al., "An ADMM Based Framework for AutoML Pipeline Configuration" (AAAI 2020), algorithms
1 and 2, in scaled form: `dual` is lambda / rho. Each integer is represented by a position on a unit
scale of its values. The loss is constant within a rounding cell, so the relaxed integer that
minimizes the augmented term has a closed form. The best slack for a given constraint value also has
a closed form.

A position consists of theta, the projection delta of theta, and the multiplier lambda. Every
algorithm keeps its positions, even while the algorithm is not chosen (eq. 9 and 11).
"""

from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from prefect_tune.optimizers.methods.declarations import AdmmOptions
from prefect_tune.optimizers.methods.flash.shared_values import SharedValues
from prefect_tune.optimizers.search.maximize import GaussianSearch
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.vectors import Array, Encoding, Grid, grid_of, to_unit
from prefect_tune.optimizers.trials.history import History, excesses, imputed_losses, log_scaled
from prefect_tune.optimizers.trials.objective import FailureCost, Objective
from prefect_tune.optimizers.trials.trial import Trial


def distances(grid: Grid, delta: float, dual: float) -> Array:
    """Return (theta(v) - b)^2 for each of the L values v, with b = delta - dual, shape (L,).

    theta(v) is the position nearest to b that is rounded to v.
    """
    b = delta - dual
    return (grid.nearest_in_cells(b) - b) ** 2


def integer_update(
    grid: Grid, delta: float, dual: float, chosen: int | None
) -> tuple[float, float, float]:
    """Return the relaxed integer, delta and dual after one iteration (algorithm 1, eq. 9 and 11).

    `delta` and `dual` are from the last iteration. `chosen` is the index of the value found by
    theta-min; None for an inactive integer, which only the augmented term determines.
    """
    b = delta - dual
    relaxed = float(np.clip(b, 0.0, 1.0) if chosen is None else grid.nearest_in_cells(b)[chosen])
    projected = float(grid.positions[grid.projected(relaxed + dual)])
    return relaxed, projected, dual + relaxed - projected


def slack(excess: ArrayLike, limit: ArrayLike, multiplier: ArrayLike, rho: float) -> Array:
    """Return the slack u from 0 to `limit` that minimizes the augmented term of g - eps."""
    return np.clip(-np.asarray(excess) - np.asarray(multiplier) / rho, 0.0, limit)


def reward(loss: ArrayLike, f_hat: float) -> Array:
    """Return the probability that a pull is a success, 1 - clip(f / f_hat, 0, 1) (eq. A39)."""
    return 1 - np.clip(np.asarray(loss) / f_hat, 0.0, 1.0)


@dataclass
class AdmmState:
    """State of the search, stored in the memo as JSON between asks.

    Keys of `units`, `delta` and `dual` are column numbers of the unit cube, as strings. Columns
    without an entry have default values.

    Attributes:
        iteration: Number of completed iterations.
        block: Sub-problem in progress.
        path: Path being tuned (z).
        asked: Number of new evaluations in this sub-problem.
        draws: Number of draws in this z-min.
        new_in_iteration: Number of new evaluations in this iteration.
        units: Positions of hyperparameters (theta).
        delta: Positions of integers after projection.
        dual: Scaled multipliers of integers, lambda / rho.
        mu: Multipliers of the constraints; empty before the first update.
        slack: Slack of each constraint at the end of the last theta-min; empty before.
        counts: Pulls and successes of the bandit by arm (`step/algorithm`, or `step/name@place` for
            an order of steps).
        open: Trials whose outcomes are not yet counted.
        pulled: Open trials of the z-min.
        seen: Trials drawn in this z-min.
        tuned: Paths that a theta-min has tuned, in order.
        theta: Parameters of the path's Gaussian process; None before the first fit.
        fitted: Number of observations at the last fit of the parameters.
    """

    iteration: int = 0
    block: Literal["start", "theta", "z"] = "start"
    path: Path = ()
    asked: int = 0
    draws: int = 0
    new_in_iteration: int = 0
    units: dict[str, float] = field(default_factory=dict)
    delta: dict[str, float] = field(default_factory=dict)
    dual: dict[str, float] = field(default_factory=dict)
    mu: list[float] = field(default_factory=list)
    slack: list[float] = field(default_factory=list)
    counts: dict[str, list[int]] = field(default_factory=dict)
    open: list[int] = field(default_factory=list)
    pulled: list[int] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    tuned: list[Path] = field(default_factory=list)
    theta: list[float] | None = None
    fitted: int = 0


@dataclass(frozen=True, slots=True)
class PathObservations:
    """Finished trials, complete and failed, in ADMM's units.

    Attributes:
        trials: The n finished trials.
        losses: Scaled losses f, shape (n,), as a fraction of the metric's range. If the metric has
            no range, f is the distance from the best loss in interquartile ranges.
        excess: Scaled excess g - eps of the constrained quantities, shape (n, M).
        limits: Upper limits of the slack, shape (M,).
        rho: Penalty parameter.
        worst_reward_loss: Smallest scaled loss f at which a pull always fails.
        origin: Loss at which f is 0.
        unit: Difference in loss that changes f by 1.
    """

    trials: list[Trial]
    losses: Array
    excess: Array
    limits: Array
    rho: float
    worst_reward_loss: float
    origin: float = 0.0
    unit: float = 1.0

    def scaled(self, losses: Array) -> Array:
        """Return losses in the units of the attribute `losses`."""
        return (losses - self.origin) / self.unit

    def row_of(self) -> dict[int, int]:
        """Return the row of each trial, by trial number."""
        return {t.number: i for i, t in enumerate(self.trials)}

    def augmented(self, state: AdmmState) -> Array:
        """Return the sum of f and the constraint terms for each trial, shape (n,)."""
        terms = self.excess + self.slack(state) + self.multipliers(state) / self.rho
        return self.losses + 0.5 * self.rho * (terms**2).sum(axis=1)

    def slack(self, state: AdmmState) -> Array:
        """Return the slack of theta-min during a z-min, or else the best slack of each trial."""
        if state.block == "z" and state.slack:
            return np.array(state.slack)
        return slack(self.excess, self.limits, self.multipliers(state), self.rho)

    def multipliers(self, state: AdmmState) -> Array:
        """Return the multiplier mu of each constraint, shape (M,)."""
        return np.array(state.mu or [0.0] * len(self.limits))


_F_HAT = 0.7
"""Smallest loss, as a fraction of the metric's range, at which a pull always fails."""


def observations(history: History, objective: Objective, options: AdmmOptions) -> PathObservations:
    """Return the finished trials in ADMM's units. Failed trials get the worst loss.

    The paper's excess is a fraction of the bound. The default takes the logarithm, so that a few
    large violations do not hide all differences near the bound.
    """
    rule: FailureCost = "bound" if options.is_paper else "worst"
    trials, losses = imputed_losses(history, objective, rule)
    span = objective.upper - objective.lower
    origin, unit, worst = 0.0, 1.0, _F_HAT
    if np.isfinite(span):
        origin, unit = objective.lower, span
    elif len(losses):
        origin = float(losses.min())
        unit = float(np.subtract(*np.percentile(losses - origin, [75, 25]))) or 1.0
        reach = 0.0 if objective.chance is None else objective.chance - origin
        worst = (reach if reach > 0 else _F_HAT * float(np.ptp(losses))) / unit or 1.0
    scaled = (losses - origin) / unit
    excess = excesses(history, trials)
    is_exceeded = (excess > 0).any(axis=0)
    limits = np.array([float(c.bound > 0) for c in history.constraints])
    if options.is_paper:
        excess = np.maximum(excess, -limits)
    else:
        excess, limits = log_scaled(excess), np.full(len(limits), inf)
        if is_exceeded.any() and history.incumbent is None:
            # Until a trial meets the constraints, only violations and failures count.
            unit, scaled = inf, np.array([float(t.loss is None) for t in trials])
    excess[:, ~is_exceeded] = 0.0
    return PathObservations(trials, scaled, excess, limits, options.rho, worst, origin, unit)


class Positions:
    """Reads and updates the positions in an `AdmmState`."""

    def __init__(
        self, space: Space, options: AdmmOptions, shared: SharedValues | None = None
    ) -> None:
        self.space, self._options = space, options
        self._encoding = Encoding(space)
        self._columns = {column: i for i, column in enumerate(self._encoding.columns)}
        self._of_paths = {self._columns[c] for c in (shared.names if shared else ())}

    def at(self, state: AdmmState, path: Path, others: Array | None = None) -> Configuration:
        """Return the configuration of a path at the current positions.

        Hyperparameters without a position take their positions from `others`, shape (d,), or their
        default values.
        """
        units = (self._default_units if others is None else others).copy()
        for key, unit in state.units.items():
            units[int(key)] = unit
        return self._encoding.from_cube(path, units)

    @property
    def n_columns(self) -> int:
        """Number d of hyperparameters of all algorithms."""
        return len(self._encoding.columns)

    def move(self, state: AdmmState, chosen: Configuration | None) -> None:
        """Update theta, delta and lambda of all integers (algorithm 1, eq. 9 and 11).

        `chosen` is the best configuration of theta-min; None if theta-min found none.
        """
        active = set[str]()
        if chosen is not None:
            units, is_active = self._encoding.to_cube(chosen)
            for column in np.flatnonzero(is_active):
                state.units[str(column)] = float(units[column])
                active.add(str(column))
        for key in sorted(active | {k for k, dual in state.dual.items() if dual}, key=int):
            grid = self._grids[int(key)]
            if grid is None or not grid.is_ordered:
                continue
            index = int(grid.index(state.units[key])) if key in active else None
            dual = state.dual.get(key, 0.0)
            relaxed, delta, dual = integer_update(grid, self._delta(state, key, grid), dual, index)
            if index is None:
                state.units[key] = float(grid.units[grid.projected(relaxed)])
            state.delta[key] = delta
            state.dual[key] = dual

    def penalties(self, state: AdmmState, search: GaussianSearch, path: Path) -> dict[int, Array]:
        """Return (rho / 2) (theta(v) - b)^2 for each value v of each ordered discrete column.

        Distances are on the unit scale, or in raw integers in the variant of the paper.
        """
        tables: dict[int, Array] = {}
        chosen = {(s.name, a) for s, a in zip(self.space.searched, path, strict=True)}
        for column, name in enumerate(search.candidates.columns):
            grid = search.inputs.grids[column]
            if grid is None or not grid.is_ordered or name[:2] not in chosen:
                continue
            key = str(self._columns[name])
            squared = distances(grid, self._delta(state, key, grid), state.dual.get(key, 0.0))
            span = len(grid.units) - 1 if self._options.is_paper else 1
            tables[column] = 0.5 * self._options.rho * span**2 * squared
        return tables

    def adopt(self, state: AdmmState, configuration: Configuration) -> None:
        """Set the positions of untuned hyperparameters and shared values from a configuration."""
        units, is_active = self._encoding.to_cube(configuration)
        for column in np.flatnonzero(is_active):
            key, grid = str(column), self._grids[column]
            if key in state.units and column not in self._of_paths:
                continue
            state.units[key] = float(units[column])
            if grid is not None and grid.is_ordered:
                state.delta[key] = float(grid.positions[int(grid.index(units[column]))])

    def _delta(self, state: AdmmState, key: str, grid: Grid) -> float:
        default = float(grid.positions[int(grid.index(self._default_units[int(key)]))])
        return state.delta.get(key, default)

    @cached_property
    def _grids(self) -> list[Grid | None]:
        each, is_paper = (
            map(self._encoding.hyperparameter, self._encoding.columns),
            self._options.is_paper,
        )
        return [grid_of(h, is_coded=is_paper) for h in each]

    @cached_property
    def _default_units(self) -> Array:
        hyperparameters = [self._encoding.hyperparameter(c) for c in self._encoding.columns]
        return np.array([to_unit(h, h.default_value) for h in hyperparameters])
