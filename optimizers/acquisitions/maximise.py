"""The candidates of largest expected improvement.

Candidates start from Sobol points and from the best observed; their numbers are polished by
L-BFGS-B on the continuous relaxation, and then the neighbours of integers, categories and
algorithms are tried.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import qmc

from prefect_tune.optimizers.acquisitions.augmented_improvement import AugmentedImprovement
from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.optimizers.space.candidates import Candidates
from prefect_tune.optimizers.space.neighbours import neighbours
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs

__all__ = ["Box", "Penalty", "maximise"]

Array = NDArray[np.floating[Any]]
Penalty = Callable[[Candidates], Array]
"""What is added to the loss of each candidate, shape (n,)."""
Box = tuple[Array, Array]
"""Lower and upper units that continuous columns are kept between, shape (d,) each."""

_SOBOL = 8
"""2^8 Sobol points an ask."""
_N_STARTS = 5
"""Best observed points whose neighbourhood is searched."""
_N_NEIGHBOURS = 24
_N_POLISHED = 3
_POLISH_ITERATIONS = 15
_N_CLIMBS = 2


def maximise(
    acquisition: AugmentedImprovement,
    inputs: PipelineInputs,
    observed: Candidates,
    rng: np.random.Generator,
    *,
    penalty: Penalty | None = None,
    within: Box | None = None,
) -> Candidates:
    """Return candidates by falling improvement.

    Args:
        acquisition: Scores inputs.
        inputs: What the acquisition sees of the candidates of a space.
        observed: Points to start from, the best first.
        rng: Source of randomness.
        penalty: What is added to the loss of a candidate.
        within: Where continuous columns are kept.
    """
    space = inputs.candidates
    added = penalty or (lambda candidates: np.zeros(len(candidates)))

    def score(candidates: Candidates) -> Array:
        return acquisition.score(inputs.of(candidates), added(candidates))

    starts = observed[:_N_STARTS]
    pool = _scaled(_drawn(space, rng), within).joined(starts)
    for deviation in (0.2, 0.05):
        near, _ = neighbours(space, starts, _N_NEIGHBOURS, rng, deviation)
        pool = pool.joined(near)
    pool = inputs.snapped(_boxed(pool, within))
    scores = score(pool)
    best = pool[np.argsort(-scores, kind="stable")[:_N_POLISHED]]
    polished = _polished(best, acquisition, inputs, added(best), within)
    pool, scores = pool.joined(polished), np.append(scores, score(polished))
    for _ in range(_N_CLIMBS):
        leader = pool[[int(np.argmax(scores))]]
        around = _boxed(_steps_around(leader, inputs, rng), within)
        if not len(around):
            break
        found = score(around)
        is_better = found.max() > scores.max()
        pool, scores = pool.joined(around), np.append(scores, found)
        if not is_better:
            break
    return pool[np.argsort(-scores, kind="stable")]


def _drawn(space: CandidateSpace, rng: np.random.Generator) -> Candidates:
    """Return Sobol points of random paths."""
    drawn = space.sample(2**_SOBOL, rng)
    d = drawn.units.shape[1]
    if not d:
        return drawn
    sobol = qmc.Sobol(d, seed=rng).random_base2(_SOBOL)
    return Candidates(drawn.algorithms, sobol[: len(drawn)])


def _polished(
    points: Candidates,
    acquisition: AugmentedImprovement,
    inputs: PipelineInputs,
    penalties: Array,
    within: Box | None,
) -> Candidates:
    """Move all points uphill at once in their active numbers: their sum is separable."""
    free = inputs.candidates.columns.active(points) & inputs.is_continuous
    if not free.any():
        return points
    rows, columns = np.nonzero(free)
    places, seen = inputs.input_of(columns), inputs.of(points)
    d = points.units.shape[1]
    lower, upper = within or (np.zeros(d), np.ones(d))

    def objective(units: Array) -> tuple[float, Array]:
        seen[rows, places] = units
        score, gradient = acquisition.score_with_gradient(seen, penalties)
        return -float(score.sum()), -gradient[rows, places]

    found = minimize(
        objective,
        np.clip(points.units[rows, columns], lower[columns], upper[columns]),
        jac=True,
        method="L-BFGS-B",
        bounds=np.column_stack([lower[columns], upper[columns]]),
        options={"maxiter": _POLISH_ITERATIONS},
    )
    units = points.units.copy()
    units[rows, columns] = found.x
    return Candidates(points.algorithms, units)


def _steps_around(
    leader: Candidates, inputs: PipelineInputs, rng: np.random.Generator
) -> Candidates:
    """Return the leader with an integer a step up or down, another category, or algorithm."""
    space = inputs.candidates
    active = space.columns.active(leader)[0]
    moved: list[Array] = []
    for column, grid in enumerate(inputs.grids):
        if grid is None or not active[column]:
            continue
        here = int(grid.index(leader.units[0, column]))
        others = (here - 1, here + 1) if grid.is_ordered else range(len(grid.units))
        for i in others:
            if 0 <= i < len(grid.units) and i != here:
                units = leader.units[0].copy()
                units[column] = grid.units[i]
                moved.append(units)
    shape = len(moved), leader.units.shape[1]
    rows: NDArray[np.float64] = np.array(moved, dtype=np.float64).reshape(shape)
    around = Candidates(np.repeat(leader.algorithms, len(moved), axis=0), rows)
    if space.space.n_paths > 1:
        near, _ = neighbours(space, leader, 4 * _N_NEIGHBOURS, rng, 0.05)
        around = around.joined(inputs.snapped(near))
    return around


def _scaled(candidates: Candidates, within: Box | None) -> Candidates:
    """Return points of the unit cube as points of the box."""
    if within is None:
        return candidates
    lower, upper = within
    scaled: NDArray[np.float64] = lower + candidates.units * (upper - lower)
    return Candidates(candidates.algorithms, scaled)


def _boxed(candidates: Candidates, within: Box | None) -> Candidates:
    """Return points clipped to the box."""
    if within is None:
        return candidates
    lower, upper = within
    boxed: NDArray[np.float64] = np.clip(candidates.units, lower, upper)
    return Candidates(candidates.algorithms, boxed)
