"""FLASH's phases: the initial design, the trials of each phase, G', and its tuning.

In Phase 3, a surrogate fitted to all trials tunes the sub-space G'.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.method import Reason
from prefect_tune.optimizers.methods.declarations import SmacOptions
from prefect_tune.optimizers.methods.flash.declaration import FlashOptions
from prefect_tune.optimizers.methods.flash.scores import LEAST_SHARE, PathModels
from prefect_tune.optimizers.methods.smac import ForestSearch, LogCost
from prefect_tune.optimizers.paths.cost import PathCost
from prefect_tune.optimizers.paths.table import PathTable, design_order
from prefect_tune.optimizers.space.candidate_space import Candidates, CandidateSpace
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.space import Path, Space, with_idle_steps
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Objective

_EXPENSIVE = 2.0
"""A path predicted to take this many median times waits until the other paths have run."""


def initial_design(
    options: FlashOptions, table: PathTable, bases: Sequence[Configuration], rng: Generator
) -> list[int]:
    """Return the paths of Phase 1 in order; plain paths of `bases` come first."""
    n = options.n_init if options.n_init is not None else table.rank
    assert options.design is not None  # noqa: S101 - resolved at construction
    if options.design == "plain_first":
        plain = sorted(table.plain, key=lambda i: table.default(i) not in bases)
        return design_order(table.one_hot, n, "d_optimal", rng, plain[:n])
    return design_order(table.one_hot, n, options.design, rng)


def rest_of_design(
    design: Sequence[int],
    options: FlashOptions,
    models: PathModels,
    history: History,
    rng: Generator,
) -> list[int]:
    """Return paths that have not run, expensive ones last; if all have, those with fewest runs."""
    own = (t for t in history if t.query.configuration not in history.misled)
    asked = Counter(models.table.numbers_of(own))
    unmatched, left = Counter(asked), []
    for i in design:
        if unmatched[i] > 0:
            unmatched[i] -= 1
        else:
            left.append(i)
    if not left:
        return sorted(map(int, rng.permutation(len(models.table))), key=lambda i: asked[i])
    if options.cost != "steps" or not history.complete:
        return left
    seconds = models.scores.seconds(history)
    ran = [seconds[i] for i in set(design).difference(left)]
    limit = _EXPENSIVE * float(np.median(ran or seconds))
    expensive = sorted((i for i in left if seconds[i] > limit), key=lambda i: seconds[i])
    return [*(i for i in left if seconds[i] <= limit), *expensive]


_DESIGN_SHARE = 0.5
_KNOWN_SHARE = 0.25
"""Length of Phase 2 as a share of the known configurations."""
_SHARE = 0.4
"""Share of a small budget for Phases 1 and 2 together."""
_MODELS_SHARE = 0.5
"""Share of a still smaller budget for one run of each model."""


@dataclass(frozen=True, slots=True)
class PhaseLengths:
    """Trials of Phases 1 and 2."""

    n_init: int
    n_prune: int

    def shrunk(self, limit: float | None, least: int = 1) -> Self:
        """Return both lengths scaled down to a `limit`, with at least `least` trials of Phase 1."""
        both = self.n_init + self.n_prune
        if limit is None or both <= limit:
            return self
        share = limit / both
        n_init = min(max(1, least, int(self.n_init * share)), self.n_init)
        return type(self)(n_init, max(min(self.n_prune, 1), int(self.n_prune * share)))


def wanted_lengths(
    options: FlashOptions, table: PathTable, n_known: int = 0, *, are_enough: bool = False
) -> PhaseLengths:
    """Return the lengths of both phases for an ample budget.

    `n_known` known configurations run first. If they are at least half as many as the design, or
    `are_enough` with an earlier run, they replace it, as a portfolio does. Phase 2 is then short,
    because they did well before.
    """
    rank = min(table.rank, len(table))
    n_init, n_prune = rank, rank
    if (are_enough or n_known >= rank * _DESIGN_SHARE) and not options.is_paper:
        n_init, n_prune = n_known, max(1, int(n_known * _KNOWN_SHARE))
    n_init = options.n_init if options.n_init is not None else n_init
    n_prune = options.n_prune if options.n_prune is not None else n_prune
    return PhaseLengths(n_init, n_prune if options.pruning else 0)


def phase_lengths(
    options: FlashOptions,
    table: PathTable,
    capacity: float | None,
    n_known: int = 0,
    *,
    are_enough: bool = False,
) -> PhaseLengths:
    """Return the lengths of both phases for a budget of `capacity` trials (None if unknown)."""
    wanted = wanted_lengths(options, table, n_known, are_enough=are_enough)
    is_given = options.n_init is not None or options.n_prune is not None
    if capacity is None or options.is_paper or is_given:
        return wanted.shrunk(capacity)
    least = len(table.plain) if options.design == "plain_first" and not are_enough else 1
    return wanted.shrunk(capacity * _SHARE, min(least, int(capacity * _MODELS_SHARE)))


def subspace_of(
    space: Space, paths: Iterable[Path], history: History, keep: float = 0.0
) -> dict[str, list[str]]:
    """Return the algorithms of paths by step, plus the `keep` share with the least losses."""
    kept = [set(column) for column in zip(*paths, strict=True)]
    if keep:
        kept = [ids | good for ids, good in zip(kept, _best(space, history, keep), strict=True)]
    names = [step.name for step in space.searched]
    closed = with_idle_steps(space.searched, dict(zip(names, kept, strict=True)))
    return {
        step.name: [a.id for a in step.algorithms if a.id in closed[step.name]]
        for step in space.searched
    }


def _best(space: Space, history: History, keep: float) -> list[set[str]]:
    complete = sorted([*history.complete, *history.older.share()], key=lambda t: (t.loss, t.number))
    best = []
    for k, step in enumerate(space.searched):
        by_loss = dict.fromkeys(t.query.configuration.path[k] for t in complete)
        n = max(2, ceil(keep * len(step.algorithms)))
        best.append(set(islice(by_loss, n)))
    return best


if TYPE_CHECKING:
    from prefect_tune.optimizers.methods.tpe import ParzenSearch


_INSTANT_SECONDS = 1e-9


class Tuning:
    """Proposes configurations of the sub-space G', and sometimes of the whole space."""

    def __init__(
        self,
        space: Space,
        subspace: Space,
        objective: Objective,
        options: FlashOptions,
        cost: PathCost,
    ) -> None:
        self._space, self._subspace = space, subspace
        self._objective, self._options, self._cost = objective, options, cost

    def propose(self, history: History, rng: Generator) -> tuple[Query, Reason]:
        """Return the next query and its reason, or raise `SpaceExhausted`."""
        outside = self._options.outside
        is_outside = rng.random() < outside if outside else False
        search = self._outside if is_outside else self._inside
        if isinstance(search, ForestSearch):
            power = self._options.cost_power or 0.0
            log_cost = self._log_cost(history, search.candidates, power)
            query, reason = search.propose(history, rng, log_cost)
        else:
            query, reason = search.propose(history, rng)
        surrogate = "forest" if isinstance(search, ForestSearch) else "densities"
        where = "in the whole space" if is_outside else "among the paths that were kept"
        return query, Reason(surrogate, f"{reason.text}, {where}")

    def _log_cost(self, history: History, space: CandidateSpace, power: float) -> LogCost | None:
        """Log divisor of expected improvement, with a floor that is the same for all batches."""
        if not power:
            return None
        predicted = self._cost.of_candidates(history, space)
        least = max(LEAST_SHARE * self._cost.typical_seconds(history), _INSTANT_SECONDS)

        def log_cost(candidates: Candidates, features: Array) -> Array:
            seconds = predicted(candidates, features)
            return power * np.log(np.maximum(seconds, least))

        return log_cost

    @cached_property
    def _inside(self) -> "ForestSearch | ParzenSearch":
        return self._search(self._subspace)

    @cached_property
    def _outside(self) -> "ForestSearch | ParzenSearch":
        return self._search(self._space)

    def _search(self, part: Space) -> "ForestSearch | ParzenSearch":
        failure_cost = self._options.failure_cost
        assert failure_cost is not None  # noqa: S101 - resolved at construction
        if self._options.phase3 == "tpe":
            # Optuna takes a second to import.
            from prefect_tune.optimizers.methods.declarations import TpeOptions  # noqa: PLC0415
            from prefect_tune.optimizers.methods.tpe import ParzenSearch  # noqa: PLC0415

            options = TpeOptions(n_startup=1, failure_cost=failure_cost)
            return ParzenSearch(part, self._objective, options)
        forest = SmacOptions(n_startup=1, failure_cost=failure_cost)
        if self._options.is_paper:
            forest = SmacOptions(
                n_startup=1,
                min_samples_split=10,
                max_features=5 / 6,
                random_share=0.5,
                failure_cost=failure_cost,
                is_log=False,
            )
        return ForestSearch(self._space, self._objective, forest, part)
