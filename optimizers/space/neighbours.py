"""Neighbours of candidates: what differs from them in one thing."""

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.optimizers.space.candidates import Candidates

__all__ = ["neighbours"]


def neighbours(
    space: CandidateSpace,
    candidates: Candidates,
    n: int,
    rng: np.random.Generator,
    deviation: float = 0.2,
) -> tuple[Candidates, NDArray[np.intp]]:
    """Return up to n neighbours of each candidate, and the row each comes from.

    A neighbour differs in one thing, drawn evenly from its steps with a choice and its active
    hyperparameters: another algorithm, another category, or a normal step from the number. Where
    algorithms ignore steps, another one may settle others than its own.
    """
    origin = np.repeat(np.arange(len(candidates)), n)
    algorithms, units = candidates.algorithms[origin], candidates.units[origin]
    if not len(origin):
        return Candidates(algorithms, units), origin
    has_choice = np.array([len(allowed) > 1 for allowed in space.allowed])
    active = space.columns.active(candidates)[origin]
    changeable = np.hstack([np.tile(has_choice, (len(origin), 1)), active])
    changed = np.where(changeable, rng.random(changeable.shape), -1.0).argmax(axis=1)
    for k, allowed in enumerate(space.allowed):
        rows = np.flatnonzero(changed == k)
        algorithms[rows, k] = _others(algorithms[rows, k], allowed, rng)
    rows = np.flatnonzero(changed >= len(has_choice))
    columns = changed[rows] - len(has_choice)
    sizes = space.columns.sizes[columns]
    units[rows, columns] = _moved(units[rows, columns], sizes, deviation, rng)
    if space.space.has_ignored:
        algorithms = space.settled(algorithms)
        is_same = (algorithms == candidates.algorithms[origin]).all(axis=1)
        is_same &= changed < len(has_choice)  # another choice of a step that is ignored
        algorithms, units, origin = algorithms[~is_same], units[~is_same], origin[~is_same]
    kept = space.can_run(algorithms)
    return Candidates(algorithms[kept], units[kept]), origin[kept]


def _others(
    chosen: NDArray[np.intp], allowed: NDArray[np.intp], rng: np.random.Generator
) -> NDArray[np.intp]:
    """Return an algorithm other than the one chosen for each row, if there is any."""
    drawn = rng.choice(allowed, size=len(chosen))
    same = drawn == chosen
    drawn[same] = allowed[(np.searchsorted(allowed, drawn[same]) + 1) % len(allowed)]
    return drawn


def _moved(
    before: NDArray[np.float64],
    sizes: NDArray[np.intp],
    deviation: float,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Return numbers a normal step away, and another of the categories where there are any."""
    moved = before + deviation * rng.standard_normal(before.shape)
    moved = 1 - np.abs(1 - np.abs(moved) % 2)  # reflected, so that ranges are not left
    others = np.maximum(sizes - 1, 1)
    away = 1 + np.minimum(np.floor(rng.random(before.shape) * others), others - 1)
    with_size = np.maximum(sizes, 1)
    redrawn = (np.floor(before * with_size) + away) % with_size
    changed: NDArray[np.float64] = np.where(sizes > 0, (redrawn + 0.5) / with_size, moved)
    return changed
