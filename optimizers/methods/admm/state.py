"""State of an ADMM search between two asks: its position, and the trials on ADMM's scales.

Positions are theta, its projection delta and the multipliers lambda. Every algorithm keeps its
position, whether chosen or not (Liu, Ram et al. 2020, eq. 9 and 11).
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from prefect_tune.optimizers.acquisitions.gaussian_search import GaussianSearch
from prefect_tune.optimizers.methods.admm.declaration import AdmmOptions
from prefect_tune.optimizers.methods.admm.splitting import (
    constraint_penalty,
    distances,
    integer_update,
)
from prefect_tune.optimizers.paths.shared_values import SharedValues
from prefect_tune.optimizers.space.candidate_space import Encoding
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.unit_interval import Array, grid_of, to_unit
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.losses import imputed_losses
from prefect_tune.optimizers.trials.objective import FailureCost, Objective
from prefect_tune.optimizers.trials.trial import Trial

Counts = dict[str, list[int]]
"""Pulls and successes by arm (`step/algorithm`, for orders `step/name@place`)."""
_UNKNOWN = 2.0
"""Value of a quantity that was not measured: twice its bound."""


@dataclass
class AdmmState:
    """State that one ask passes to the next; the memo is its JSON document.

    Columns of the unit cube are keyed by text. Missing columns are at their defaults.

    Attributes:
        block, path: Sub-problem in progress, and the path being tuned (z).
        asked, new_in_iteration: New evaluations of this block, and of this iteration.
        units, delta, dual: Positions of hyperparameters (theta), of projected integers, and
            lambda / rho, by column.
        mu: Multipliers of the constraints, in units of their bounds, by name and bound.
        counts: Pulls and successes of the bandit.
        open, pulled: Trials whose outcome is not counted yet, and the open trials of the z-min.
        tuned: Paths that have been tuned by a theta-min.
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
    """Told trials, complete and failed, on the scales that ADMM works with.

    Attributes:
        losses: f, as a share of the metric's range; for metrics without a range, the distance from
            the best loss in interquartile ranges, shape (n,).
        quantities: Constrained quantities in units of their bounds, shape (n, M).
        bounds: Bounds in the same units, less the margin, shape (M,): about 1, or 0 for a bound of
            0.
        constraints: Keys of the constraints' multipliers in the state, shape (M,).
        worst_reward_loss: Smallest f at which a pull earns nothing.
        origin, unit: Loss at which f is 0, and difference of losses that changes f by 1.
    """

    trials: list[Trial]
    losses: Array
    quantities: Array
    bounds: Array
    constraints: tuple[str, ...]
    worst_reward_loss: float
    origin: float = 0.0
    unit: float = 1.0

    def scaled(self, losses: Array) -> Array:
        """Return f of any losses."""
        return (losses - self.origin) / self.unit

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
        """Return mu of each constraint, 0 for constraints added later, shape (M,)."""
        return np.array([state.mu.get(name, 0.0) for name in self.constraints])


def observations(
    history: History, objective: Objective, rule: FailureCost, f_hat: float, margin: float
) -> PathObservations:
    """Return the told trials. Failed trials get the loss of `rule` and no quantities.

    `f_hat` is the share of the metric's range from which a pull earns nothing; `margin` is the
    distance kept below a bound, as a share of it.
    """
    trials, losses = imputed_losses(history, objective, rule)
    span = objective.upper - objective.lower
    origin, unit = 0.0, 1.0
    if np.isfinite(span):
        origin, unit = objective.lower, span
        worst = f_hat
    elif len(losses):
        best = losses.min()
        spread = float(np.subtract(*np.percentile(losses, [75, 25]))) or 1.0
        chance = objective.chance
        reach = f_hat * np.ptp(losses) if chance is None else max(chance - best, 0.0)
        origin, unit = best, spread
        worst = max(float(reach), 1e-12) / spread
    else:
        worst = f_hat
    quantities, bounds = _quantities(trials, objective)
    names = tuple(f"{c.name}<={c.bound!r}" for c in objective.constraints)
    return PathObservations(
        trials,
        (losses - origin) / unit,
        quantities,
        bounds * (1 - margin),
        names,
        worst,
        float(origin),
        float(unit),
    )


def _quantities(trials: list[Trial], objective: Objective) -> tuple[Array, Array]:
    """Quantities divided by their bounds, or by a typical value if that is 0; 0 for idle bounds."""
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


class Positions:
    """Reads and moves the positions of a state; stateless itself."""

    def __init__(
        self, space: Space, options: AdmmOptions, shared: SharedValues | None = None
    ) -> None:
        self.space, self.options = space, options
        self._encoding = Encoding(space)
        self._columns = {column: i for i, column in enumerate(self._encoding.columns)}
        self._of_paths = {self._columns[c] for c in (shared.names if shared else ())}

    def at(self, state: AdmmState, path: Path, others: Array | None = None) -> Configuration:
        """Return the path with current hyperparameters, untuned ones from `others`, shape (d,)."""
        units = (self._default_units if others is None else others).copy()
        for key, unit in state.units.items():
            units[int(key)] = unit
        return self._encoding.from_cube(path, units)

    @property
    def n_columns(self) -> int:
        """Number of hyperparameters of all algorithms (d)."""
        return len(self._encoding.columns)

    def move(self, state: AdmmState, chosen: Configuration | None) -> None:
        """Move theta, delta and lambda of all integers in place (algorithm 1, eq. 9 and 11)."""
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
            relaxed, delta, dual = integer_update(grid, self._delta(state, key), dual, index)
            if index is None:
                state.units[key] = float(grid.units[grid.projected(relaxed)])
            state.delta[key] = delta
            state.dual[key] = dual if self.options.rho > 0 else 0.0

    def penalties(self, state: AdmmState, search: GaussianSearch, path: Path) -> dict[int, Array]:
        """Return (rho / 2) (theta(v) - b)^2 of each value, by ordered discrete column."""
        tables = {}
        chosen = {(s.name, a) for s, a in zip(self.space.searched, path, strict=True)}
        for column, name in enumerate(search.candidates.encoding.columns):
            grid = search.inputs.grids[column]
            is_pulled = grid is not None and grid.is_ordered and name[:2] in chosen
            if grid is None or not is_pulled or self.options.rho == 0:
                continue
            key = str(self._columns[name])
            squared = distances(grid, self._delta(state, key), state.dual.get(key, 0.0))
            tables[column] = 0.5 * self.options.rho * squared
        return tables

    def adopt(self, state: AdmmState, configuration: Configuration) -> None:
        """Start untuned algorithms, and all shared values, from this configuration's values."""
        units, is_active = self._encoding.to_cube(configuration)
        for column in np.flatnonzero(is_active):
            key, grid = str(column), self._grids[column]
            if key in state.units and column not in self._of_paths:
                continue
            state.units[key] = float(units[column])
            if grid is not None and grid.is_ordered:
                state.delta[key] = float(grid.positions[int(grid.index(units[column]))])

    def _delta(self, state: AdmmState, key: str) -> float:
        grid = self._grids[int(key)]
        assert grid is not None  # noqa: S101 - only integers have one
        default = float(grid.positions[int(grid.index(self._default_units[int(key)]))])
        return state.delta.get(key, default)

    @cached_property
    def _grids(self) -> list[Any]:
        return [grid_of(self._encoding.hyperparameter(c)) for c in self._encoding.columns]

    @cached_property
    def _default_units(self) -> Array:
        hyperparameters = [self._encoding.hyperparameter(c) for c in self._encoding.columns]
        return np.array([to_unit(h, h.default_value) for h in hyperparameters])
