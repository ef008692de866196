"""Predicted run times of candidates, summed over steps; a cached step takes its load time.

FLASH's prefix cache needs this additive model (Zhang et al. 2016, section 3.4). A code is a number
that identifies the first steps of a pipeline. Codes are equal if the same steps ran in the same
order with the same values. Steps that pass on their input unchanged do not count.
"""

from collections import defaultdict
from collections.abc import Callable
from math import inf

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.models.seconds import Costs
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.vectors import Array, Candidates, CandidateSpace
from prefect_tune.optimizers.trials.history import History


class PathCost:
    """Predicts the run times of full evaluations from the run times of their steps."""

    def __init__(self, space: CandidateSpace, costs: Costs) -> None:
        self._space, self._costs = space, costs
        self._steps = steps = space.space.searched
        sizes = [len(step.algorithms) for step in steps]
        self._offsets = np.cumsum([0, *sizes[:-1]])
        self._is_of_step = np.eye(len(steps))[space.step]
        columns = defaultdict[tuple[str, str], list[int]](list)
        for j, (step, algorithm, _) in enumerate(space.columns):
            columns[step, algorithm].append(j)
        self._columns = columns
        of_feature = np.concatenate([np.repeat(np.arange(len(steps)), sizes), space.step])
        rng = np.random.default_rng(0)
        self._weights = rng.random((len(of_feature), 1)) * np.eye(len(steps))[of_feature]
        self._of_rank = rng.random(len(steps) + 1)

    def after(self, history: History | None) -> Callable[[Candidates, Array], Array]:
        """Return a function that maps candidates and features to predicted seconds, shape (n,).

        A step takes its load time if a trial of `history` has cached the step. If `history` is
        None, no step is cached.
        """
        space, costs = self._space, self._costs
        levels = np.full((2, len(space.algorithms)), -inf)
        slopes = np.zeros((2, len(space.columns)))
        for step in self._steps:
            for algorithm in step.algorithms:
                if not algorithm.is_passthrough:
                    pair = step.name, algorithm.id
                    lines = costs.lines(*pair)
                    levels[:, space.algorithms.index(pair)] = lines[:, 0]
                    slopes[:, self._columns[pair]] = lines[:, 1:]
        measured = (k for k in range(2) if np.isfinite(levels[k]).any())
        parts = [(levels[k], slopes[k][:, None] * self._is_of_step) for k in measured]
        overhead, load = costs.overhead_seconds, costs.load_seconds
        cached: NDArray[np.float64] | None = None
        if history is not None and load < inf:
            # Skip raced trials, which did not run on all folds.
            whole = (t for t in history.complete if t.number not in history.estimated)
            ran = self._space.encode(t.query.configuration for t in whole)
            cached = self.codes(ran, self._space.features(ran))

        def seconds(candidates: Candidates, features: Array) -> Array:
            positions = features[:, len(space.algorithms) :]
            centered = np.where(positions < 0, 0.0, positions - 0.5)
            of_steps = np.zeros(candidates.algorithms.shape)
            for level, of_positions in parts:
                moved = centered @ of_positions
                of_steps += np.exp(level[candidates.algorithms + self._offsets] + moved)
            if cached is not None and len(candidates):
                codes = self.codes(candidates, features)
                for k in range(codes.shape[1] - 1):  # the last step, the model, is never cached
                    is_cached = np.isin(codes[:, k], cached[:, k])
                    of_steps[is_cached, k] = np.minimum(of_steps[is_cached, k], load)
            return overhead + of_steps.sum(axis=1)

        return seconds

    def codes(self, candidates: Candidates, features: Array) -> NDArray[np.float64]:
        """Return the codes of candidates up to each searched step, shape (n, K).

        A code is a sum of features with random weights that depend on the order of the steps.
        """
        algorithms = candidates.algorithms
        places = running_places(self._space.space, algorithms)
        is_idle = [np.array([a.is_idle for a in step.algorithms]) for step in self._steps]
        columns = zip(is_idle, algorithms.T, strict=True)
        ran = (places >= 0) & ~np.column_stack([idle[column] for idle, column in columns])
        # Whether step j (last axis) is step k or ran before step k.
        before = ran[:, None, :] & (places[:, None, :] <= places[:, :, None])
        of_steps = (features @ self._weights) * self._of_rank[before.sum(axis=2)]
        return np.round((before * of_steps[:, None, :]).sum(axis=2), 9)


def running_places(space: Space, algorithms: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the position at which each searched step of a path runs, shape (n, K).

    The position is -1 for steps that do not run, such as a step that chooses the order of other
    steps.
    """
    steps = space.searched
    choosing = [k for k, step in enumerate(steps) if step.orders]
    if not choosing:
        return np.broadcast_to(np.arange(len(steps)), algorithms.shape)
    position = {step.name: k for k, step in enumerate(steps)}
    places = np.full(algorithms.shape, -1, dtype=np.intp)
    orders, rows = np.unique(algorithms[:, choosing], axis=0, return_inverse=True)
    for i in range(len(orders)):
        of_order = np.flatnonzero(rows.reshape(-1) == i)
        numbers = zip(steps, algorithms[of_order[0]], strict=True)
        pipeline = space.pipeline(tuple(step.algorithms[a].id for step, a in numbers))
        ran = [position[step.name] for step, _ in pipeline if not step.fixed]
        places[of_order[:, None], ran] = np.arange(len(ran))
    return places
