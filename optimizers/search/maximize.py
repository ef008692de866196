"""Search for the candidates with the largest improvement, by gradients or in a pool.

`maximize` starts from Sobol points and the best observed candidates. L-BFGS-B optimizes the
continuous hyperparameters. Neighboring integers, other categories and other algorithms are tried
next. A pool needs no gradients: half of its candidates are drawn from the prior, and half near the
best candidates, using normal steps of many widths and switched choices. Entropy search draws
representers from the pool (Hennig and Schuler 2012).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.optimize import minimize
from scipy.stats import qmc

from prefect_tune.optimizers.models.forest import OlderMean
from prefect_tune.optimizers.models.gaussian_process import FIT_ITERATIONS, GaussianProcess
from prefect_tune.optimizers.models.inputs import PipelineInputs
from prefect_tune.optimizers.search.improvement import N_SOBOL, FeasibleImprovement
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.vectors import (
    N_NEIGHBORS,
    Array,
    Candidates,
    CandidateSpace,
    neighbors,
    reflected,
)
from prefect_tune.optimizers.trials.earlier import OlderTrials

_SWITCHED = 0.25
"""Probability that a move switches to another algorithm, or a category to another category."""


def pool_around(inputs: PipelineInputs, best: Candidates, n: int, rng: Generator) -> Candidates:
    """Return `best` and n new candidates, half from the prior and half near `best`.

    If `best` is empty, all new candidates are from the prior.
    """
    if not len(best):
        return inputs.snapped(drawn_evenly(inputs, n, rng))
    widths = np.exp(rng.uniform(np.log(0.01), np.log(0.2), (n - n // 2, 1)))
    near = moved(inputs, best[rng.integers(len(best), size=len(widths))], widths, rng)
    pool = best.joined(drawn_evenly(inputs, n // 2, rng), near)
    return inputs.snapped(pool)


def drawn_evenly(inputs: PipelineInputs, n: int, rng: Generator) -> Candidates:
    """Return up to n candidates from the prior, with equal numbers for all models."""
    drawn = inputs.candidates.sample(4 * n, rng)
    models = drawn.algorithms[:, -1]
    turn = np.zeros(len(drawn), dtype=np.intp)
    for model in np.unique(models):
        mine = models == model
        turn[mine] = np.arange(mine.sum())
    return drawn[np.sort(np.argsort(turn, kind="stable")[:n])]


def moved(inputs: PipelineInputs, origins: Candidates, widths: Array, rng: Generator) -> Candidates:
    """Return candidates near n origins.

    `widths`, shape (n, 1), are the deviations of steps. Candidates with paths that cannot run are
    excluded.
    """
    space = inputs.candidates
    n, d = origins.units.shape
    units = reflected(origins.units + widths * rng.standard_normal((n, d)))
    is_category = space.sizes > 0
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
            own = space.step == step
            units[row, own] = redrawn[row, own]
    algorithms = space.canonical_paths(algorithms)
    can_run = space.can_run(algorithms)
    return inputs.snapped(Candidates(algorithms[can_run], units[can_run]))


Penalty = Callable[[Candidates], Array]
"""Function from candidates to known terms that are added to the losses, shape (n,)."""

N_STARTS = 5
"""Number of the best observed candidates whose neighborhood is searched, and of the best candidates
that are optimized by gradients."""


def maximize(
    acquisition: FeasibleImprovement,
    inputs: PipelineInputs,
    observed: Candidates,
    rng: Generator,
    *,
    penalty: Penalty | None = None,
) -> Candidates:
    """Return candidates by decreasing improvement.

    Args:
        acquisition: Improvement to maximize.
        inputs: Inputs of the acquisition's process.
        observed: Observed candidates, best first.
        rng: Random generator.
        penalty: Term to add to the losses of candidates.
    """
    space, d = inputs.candidates, len(inputs.candidates.columns)
    added = penalty or (lambda candidates: np.zeros(len(candidates)))

    def score(candidates: Candidates) -> Array:
        return acquisition.score(inputs.of(candidates), added(candidates))

    starts, drawn = observed[:N_STARTS], space.sample(N_SOBOL, rng)
    units = qmc.Sobol(d, rng=rng).random(N_SOBOL)[: len(drawn)] if d else drawn.units
    pool = Candidates(drawn.algorithms, units).joined(starts)
    for deviation in (0.2, 0.05):
        near, _ = neighbors(space, starts, N_NEIGHBORS, rng, deviation)
        pool = pool.joined(near)
    pool = inputs.snapped(pool)
    scores = score(pool)
    best = pool[np.argsort(-scores, kind="stable")[:N_STARTS]]
    # The best candidates are optimized together, because the sum of their scores is separable.
    rows, columns = np.nonzero(space.active(best) & inputs.is_continuous)
    if len(rows):
        places, seen, penalties = inputs.input_of(columns), inputs.of(best), added(best)

        def objective(units: Array) -> tuple[float, Array]:
            seen[rows, places] = units
            score, gradient = acquisition.score_with_gradient(seen, penalties)
            return -float(score.sum()), -gradient[rows, places]

        found = minimize(
            objective,
            best.units[rows, columns],
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, 1)] * len(rows),
            options={"maxiter": FIT_ITERATIONS},
        )
        best.units[rows, columns] = found.x
        pool, scores = pool.joined(best), np.append(scores, score(best))
    around = _steps_around(pool[[int(np.argmax(scores))]], inputs, rng)
    if len(around):
        pool, scores = pool.joined(around), np.append(scores, score(around))
    return pool[np.argsort(-scores, kind="stable")]


def _steps_around(leader: Candidates, inputs: PipelineInputs, rng: Generator) -> Candidates:
    space = inputs.candidates
    moved: list[Array] = []
    for column in np.flatnonzero(space.active(leader)[0]):
        if (grid := inputs.grids[column]) is None:
            continue
        here = int(grid.index(leader.units[0, column]))
        others = (here - 1, here + 1) if grid.is_ordered else range(len(grid.units))
        for i in others:
            if 0 <= i < len(grid.units) and i != here:
                units = leader.units[0].copy()
                units[column] = grid.units[i]
                moved.append(units)
    rows = np.array(moved, dtype=np.float64).reshape(len(moved), leader.units.shape[1])
    around = Candidates(np.repeat(leader.algorithms, len(moved), axis=0), rows)
    if space.space.n_paths > 1:
        near, _ = neighbors(space, leader, 4 * N_NEIGHBORS, rng, 0.05)
        around = around.joined(inputs.snapped(near))
    return around


_GROWN = 1.1
"""Factor by which the number of observations must grow before parameters are refitted."""


def is_refitted(n: int, n_last: int) -> bool:
    """Return whether parameters are refitted at n observations, after a fit to `n_last`."""
    return n >= _GROWN * n_last


@dataclass(frozen=True, slots=True)
class Fitted:
    """Parameters of a process, kept for the next ask.

    Attributes:
        theta: Values of the parameters.
        n: Number of observations in the fit; 0 if unknown.
    """

    theta: tuple[float, ...]
    n: int


class GaussianSearch:
    """Candidates and process inputs of one space, without observations."""

    def __init__(self, space: Space, *, is_coded: bool = False) -> None:
        self.space = space
        self.candidates = CandidateSpace(space)
        self.inputs = PipelineInputs(self.candidates, is_coded=is_coded)
        self._older_mean = OlderMean(lambda known: self.inputs.of(self.inputs.encode(known)))

    def older_mean(self, older: OlderTrials) -> Penalty | None:
        """Return the mean loss estimated from earlier runs; None if there are too few observations.

        The observations must be in this space.
        """
        if (mean := self._older_mean.given(older)) is None:
            return None
        return lambda candidates: mean(self.inputs.of(candidates))

    def learned(
        self,
        observed: Candidates,
        targets: Array,
        rng: Generator,
        last: Fitted | None = None,
        pending: Sequence[Configuration] = (),
    ) -> tuple[GaussianProcess, Fitted]:
        """Return the process of n observations, and its parameters for the next ask.

        The parameters are refitted whenever the number of observations has grown by a tenth.

        Args:
            observed: Observed candidates.
            targets: Targets, shape (n, t).
            rng: Random generator for the second start of a fit without `last` parameters.
            last: Parameters of the previous ask, from which a fit starts.
            pending: Pending configurations, assumed to have their predicted means.
        """
        kernel, inputs = self.inputs.kernel, self.inputs.of(observed)
        n, n_parameters = len(inputs), len(kernel.parameters) + 1
        last = last if last and len(last.theta) == n_parameters else Fitted((), 0)
        start, fitted_to = np.array(last.theta) if last.theta else None, last.n
        if start is not None and not is_refitted(n, fitted_to):
            process = GaussianProcess.given(kernel, start, inputs, targets)
        else:
            process = GaussianProcess.fit(
                kernel,
                inputs,
                targets,
                rng=rng,
                warm_start=start,
                n_restarts=int(start is None),
            )
            fitted_to = n
        kept = Fitted(tuple(round(float(x), 6) for x in process.theta), fitted_to)
        if pending:
            process = process.imagining(self.inputs.of(self.inputs.encode(pending)))
        return process, kept
