"""ADMM: tune one path, choose the next path, and couple the two steps, under constraints.

Liu, Ram, Vijaykeerthy et al., "An ADMM Based Framework for AutoML Pipeline Configuration" (AAAI
2020). An iteration of algorithms 1 and 2, with b = delta - lambda / rho:

    theta-min: min f + (rho/2) |theta_d - b|^2  Admm._theta_min, ThetaMin (eq. 8 and 10)
      + (rho/2) sum (g - eps + u + mu / rho)^2  PathObservations.augmented, slack (u in closed form)
    delta-min: project and round (eq. 11)       Positions.move, integer_update, in Admm._end_theta
    z-min: the same at this theta and u         ZMin.propose, PathArms (algorithm A1)
    lambda += rho (theta_d - delta)             integer_update
    mu += rho (g - eps + u)                     Admm._end_z

Integers of evaluated configurations are rounded, so the incumbent is always valid. Departures from
the paper (`variant=paper` undoes all; the documentation lists what the paper leaves open):

- Integers are penalized on their unit scale, and categories are not penalized.
- The penalty of a constraint grows with the logarithm of g / eps, and theta-min multiplies the
  expected improvement by the probability of feasibility.
- Until a trial meets the constraints, losses do not count.
- Each model is tried once before any path is tuned.
- Paths are drawn from a linear model of the lowest loss of each path. The model also draws
  categorical values of steps common to all paths, with effects by model family (see
  `SharedValues`).
- Algorithms that were never tuned are tried with default values, then with random values.
- Every second iteration tunes a path that has not been tuned before.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.documents import from_document, to_document
from prefect_tune.optimizers.method import Method, Reason, ordinal
from prefect_tune.optimizers.methods.admm.paths import ZMin
from prefect_tune.optimizers.methods.admm.splitting import (
    AdmmState,
    PathObservations,
    Positions,
    observations,
)
from prefect_tune.optimizers.methods.admm.values import ThetaMin
from prefect_tune.optimizers.methods.declarations import ADMM
from prefect_tune.optimizers.methods.flash.shared_values import VARIED_SHARE, SharedValues
from prefect_tune.optimizers.models.seconds import Costs
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.space.configuration import Configuration, Query, is_allowed
from prefect_tune.optimizers.space.sampling import SpaceExhausted, new_configuration
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.trials.history import trials_affordable


def simplest_path(space: Space, paths: Sequence[Path]) -> Path:
    """Return the path of no-op steps and naive Bayes (section 5), or the most similar one."""
    wanted = []
    for step in space.searched:
        plain = [a for a in step.algorithms if a.is_passthrough or a.id == "gaussian_nb"]
        least = min(step.algorithms, key=lambda a: a.n_hyperparameters)
        wanted.append((plain[0] if plain else least).id)
    path = space.canonical_path(tuple(wanted))
    if path in paths:
        return path
    alike = [sum(a == b for a, b in zip(path, p, strict=True)) for p in paths]
    return paths[int(np.argmax(alike))]


_EFFORT = 3
"""Growth of the effort with each iteration. The first iteration has twice this effort."""
_PAPER_EFFORT, _MOST_PAPER_EFFORT = 16, 128
"""Effort of the first iteration and its growth, and the largest effort, in the paper."""


class Admm(Optimizer):
    """Alternating direction method of multipliers, over paths, integers and real numbers."""

    method: ClassVar[Method] = ADMM

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._state = AdmmState()
        shared = None if self.is_of_paper else SharedValues(self.space, numbers=False)
        self._shared = shared if shared and shared.width else None
        self._positions = Positions(self.space, self.options, self._shared)
        self._theta = ThetaMin(self.space, self.options, self._positions)
        self._z = ZMin(
            self.space, self.seed, self._positions, self._shared, is_paper=self.is_of_paper
        )

    @property
    def decisions(self) -> dict[str, Any]:
        """State of the iteration, as JSON values.

        `tuned` lists the paths tuned so far, in order. `multipliers` has one value per constraint,
        in the order of the constraints.
        """
        state = self._state
        return {
            "iteration": state.iteration,
            "path": list(state.path),
            "tuned": [list(path) for path in state.tuned],
            "multipliers": list(state.mu),
            **super().decisions,
        }

    def _propose(self, budget: Budget, rng: Generator) -> Query:
        observed = observations(self.history, self.objective, self.options)
        before = deepcopy(self._state)
        try:
            self._z.count(self._state, observed, rng)
            query = self._next(observed, budget, rng)
        except SpaceExhausted:  # a resumed study does not repeat asks that raised an exception
            self._state = before
            raise
        self._state.open.append(len(self.history))
        self._state.new_in_iteration += 1
        self.memo = to_document(self._state)
        return query

    def _restore(self, memo: Mapping[str, Any]) -> None:
        super()._restore(memo)
        self._state = from_document(AdmmState, memo)

    def _next(self, observed: PathObservations, budget: Budget, rng: Generator) -> Query:
        state = self._state
        if state.block == "start":
            asked, is_known = self.history.asked, self._uses_ample_prior
            first = next((c for c in self._first if c not in asked and not is_known), None)
            if first is not None:
                state.path = first.path
                place, n_first = self._first.index(first) + 1, len(self._first)
                why = f"{ordinal(place)} of {n_first} paths before the first iteration"
                self._because = Reason("first paths", why)
                return Query(first)
            if (varied := self._varied(budget, rng)) is not None:
                state.path = varied.path
                self._because = Reason(
                    "shared values", "a value of a shared step that few trials have used"
                )
                return Query(varied)
            best_path = simplest_path(self.space, self._z.arms.paths)
            if observed.trials:
                best_row = int(np.argmin(observed.augmented(state)))
                best_path = observed.trials[best_row].query.configuration.path
            self._begin_theta(best_path)
            if is_known and (best := self.history.incumbent) is not None:
                self._positions.adopt(state, best.query.configuration)
        while True:
            effort = self._effort
            if state.block == "theta":
                query = self._theta_min(observed, effort, rng)
                if query is not None:
                    why = "hyperparameters of the current path"
                    self._because = self._of_block("theta-min", why, effort)
                    return Query(query)
                self._end_theta(observed)
            configuration = self._z.propose(state, observed, self.history, effort, rng)
            if configuration is not None:
                model = "" if self.is_of_paper else " from a linear model"
                why = f"path by Thompson sampling{model}"
                self._because = self._of_block("z-min", why, effort)
                return Query(configuration)
            is_stalled = state.new_in_iteration == 0
            self._end_z(observed)
            if is_stalled:
                # The path of the new configuration is tuned next.
                self._because = Reason("random", "an iteration found nothing new")
                configuration = new_configuration(self.space, self.history.asked, rng)
                self._begin_theta(configuration.path)
                self._positions.move(state, configuration)
                return Query(configuration)

    def _varied(self, budget: Budget, rng: Generator) -> Configuration | None:
        if self._shared is None or self._uses_ample_prior:
            return None
        n_varied = len(self.history) - len(self._first) - len(self._start) - len(self._repeated)
        holds = trials_affordable(budget, self.history)
        if holds is not None and n_varied >= VARIED_SHARE * holds:
            return None
        return self._shared.untried(self._bases, self.history, rng)

    @cached_property
    def _bases(self) -> list[Configuration]:
        assert self._shared is not None  # noqa: S101 - callers check it
        return self._shared.bases(self._z.arms.paths, Costs(self.space, self.objective))

    def _of_block(self, block: str, what: str, effort: int) -> Reason:
        self._state.asked += 1
        iteration, place = self._state.iteration + 1, ordinal(self._state.asked)
        return Reason(block, f"{what}, {place} of {effort} trials in iteration {iteration}")

    @property
    def _effort(self) -> int:
        """The effort of iteration t, I + t F (adaptive ADMM, section 5)."""
        t = self._state.iteration
        if self.is_of_paper:
            return min(_PAPER_EFFORT * (1 + t), _MOST_PAPER_EFFORT)
        return _EFFORT * (2 + t)

    def _begin_theta(self, path: Path) -> None:
        state = self._state
        if state.path != path:
            state.theta, state.fitted = None, 0
        state.block, state.path, state.asked = "theta", path, 0
        state.new_in_iteration = 0

    def _theta_min(
        self, observed: PathObservations, effort: int, rng: Generator
    ) -> Configuration | None:
        path = self._state.path
        part = self._theta.search(path).space
        if self._state.asked >= effort or (part.n_paths == 1 and not part.n_hyperparameters):
            return None
        if path not in self._state.tuned:
            self._state.tuned.append(path)
        here = self._positions.at(self._state, path)
        if here not in self.history.asked and is_allowed(self.space, here):
            return here
        try:
            return self._theta.propose(self._state, observed, self.history, rng)
        except SpaceExhausted:
            return None

    def _end_theta(self, observed: PathObservations) -> None:
        state = self._state
        rows = [
            i
            for i, t in enumerate(observed.trials)
            if t.query.configuration.path == state.path and not t.failure
        ]
        best: Configuration | None = None
        if rows:
            search = self._theta.search(state.path)
            configurations = [observed.trials[i].query.configuration for i in rows]
            values = observed.augmented(state)[rows]
            values = values + self._theta.penalty(state)(search.inputs.encode(configurations))
            best = configurations[least := int(np.argmin(values))]
            state.slack = observed.slack(state)[rows[least]].tolist()
        self._positions.move(state, best)
        state.block, state.asked, state.draws, state.seen = "z", 0, 0, []

    def _end_z(self, observed: PathObservations) -> None:
        state, row_of = self._state, observed.row_of()
        values = observed.augmented(state)
        paths = [t.query.configuration.path for t in observed.trials]
        own = [i for i, p in enumerate(paths) if p == state.path]
        seen = [row_of[n] for n in state.seen if n in row_of]
        rows = sorted({*seen, *own}, key=lambda i: (values[i], i))
        if state.iteration % 2 and not self.is_of_paper:
            rows = [i for i in rows if paths[i] not in state.tuned] or rows
        path = paths[rows[0]] if rows else state.path
        if rows:
            residual = (observed.excess + observed.slack(state))[rows[0]]
            state.mu = (observed.multipliers(state) + self.options.rho * residual).tolist()
            self._positions.adopt(state, observed.trials[rows[0]].query.configuration)
        state.iteration += 1
        self._begin_theta(path)

    @cached_property
    def _first(self) -> list[Configuration]:
        """The simplest path and, by default, one path per other model, with initial values."""
        known, models = self._z.arms.paths, self.space.searched[-1].algorithms
        paths = [simplest_path(self.space, known)]
        if not self.is_of_paper:
            others = set(known).difference(paths)
            each = [self.space.canonical_path((*paths[0][:-1], a.id)) for a in models]
            paths += [path for path in each if path in others]
        return [c for p in paths if is_allowed(self.space, c := self._positions.at(self._state, p))]
