"""Candidates among which the minimiser is sought, and the next query: half new, half near the best.

No gradients are needed: numbers move by normal steps of many widths, and pipelines may switch one
choice. Entropy search draws its representers from them (Hennig and Schuler 2012).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.space.candidate_space import Candidates
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs

Array = NDArray[np.floating[Any]]

_SWITCHED = 0.25
"""Share of the moves that take another algorithm, or another category."""


def pool_around(
    inputs: PipelineInputs, best: Candidates, n: int, rng: np.random.Generator
) -> Candidates:
    """Return n candidates, half from the prior and half near the best, and the best themselves.

    Args:
        inputs: Of the space.
        best: Those that others are near to; without any, all are from the prior.
        n: Besides the best.
        rng: Source of randomness.
    """
    if not len(best):
        return inputs.snapped(drawn_evenly(inputs, n, rng))
    widths = np.exp(rng.uniform(np.log(0.01), np.log(0.2), (n - n // 2, 1)))
    near = moved(inputs, best[rng.integers(len(best), size=len(widths))], widths, rng)
    pool = best.joined(drawn_evenly(inputs, n // 2, rng), near)
    return inputs.snapped(pool)


def drawn_evenly(inputs: PipelineInputs, n: int, rng: np.random.Generator) -> Candidates:
    """Return up to n candidates from the prior, as many of each model algorithm as of any other."""
    space = inputs.candidates
    drawn = space.sample(4 * n, rng)
    if len(drawn) <= n:
        return drawn
    models = drawn.algorithms[:, -1] if drawn.algorithms.shape[1] else np.zeros(len(drawn))
    turn = np.zeros(len(drawn), dtype=np.intp)
    for model in np.unique(models):
        mine = models == model
        turn[mine] = np.arange(mine.sum())
    return drawn[np.sort(np.argsort(turn, kind="stable")[:n])]


def moved(
    inputs: PipelineInputs, origins: Candidates, widths: Array, rng: np.random.Generator
) -> Candidates:
    """Return a candidate near each origin: normal steps of its numbers, at times another choice.

    Args:
        inputs: Of the space.
        origins: n candidates.
        widths: Deviations of the steps, on the unit interval, shape (n, 1).
        rng: Source of randomness.
    """
    space = inputs.candidates
    n, d = origins.units.shape
    units = origins.units + widths * rng.standard_normal((n, d))
    units = 1 - np.abs(1 - np.abs(units) % 2)  # reflected, so that ranges are not left
    is_category = space.columns.sizes > 0
    redrawn = rng.random((n, d))
    keeps = is_category & (rng.random((n, d)) >= _SWITCHED)
    units = np.where(keeps, origins.units, np.where(is_category, redrawn, units))
    algorithms = origins.algorithms.copy()
    has_choice = np.flatnonzero([len(allowed) > 1 for allowed in space.allowed])
    if len(has_choice):
        switched = np.flatnonzero(rng.random(n) < _SWITCHED)
        steps = rng.choice(has_choice, size=len(switched))
        for row, step in zip(switched, steps, strict=True):
            others = space.allowed[step][space.allowed[step] != algorithms[row, step]]
            algorithms[row, step] = rng.choice(others)
            own = space.columns.step == step
            units[row, own] = redrawn[row, own]
    algorithms = space.settled(algorithms)
    can_run = space.can_run(algorithms)
    return inputs.snapped(Candidates(algorithms[can_run], units[can_run]))
