"""FLASH: an initial design, pruning of paths by a linear model, and tuning of the remaining paths.

Zhang, Bahadori, Su and Sun, "FLASH: Fast Bayesian Optimization for Data Analytic Pipelines" (KDD
2016), algorithm 1:

    lines 3 to 8, T_init                        Flash._designed, by design_order (eq. 3)
    lines 8 and 16, beta by eq. 1               PathLinear.fit
    lines 11 to 16, T_prune: max EIPS (eq. 4)   Flash._most_promising, by PathScores.terms (eq. 2)
    line 18, G' of the r best paths             Flash._prune, by subspace_of
    lines 20 to 26, T_total                     Flash._tuned, by ForestSearch on trials within G'
    algorithm 3, cached prefixes                the cache of tasks; PathCost counts cached steps

Departures of the default variant (`variant=paper` undoes all):

- Phases 1 and 2 are a third as long, and shorter if the budget is small.
- Eq. 1 has a free intercept, as in the authors' code, and a smaller penalty. Only the first run of
  each path counts.
- The first run of a path has default values.
- Hyperparameters of steps common to all paths are searched like algorithms (see `SharedValues`).
  The first trials vary the shared values on the cheapest linear model and the cheapest boosted
  trees. Eq. 1 has columns for shared values, overall and by model family. The first run of a path
  uses the best values so far for the path's model family.
- The cost of a path is its run time, summed over steps, and ln(e + seconds) is the divisor. Phase 2
  also has xi = 0.
- Phase 3 decides on G' before each trial, and always includes the incumbent's path. The forest
  learns from all trials and predicts the residuals of a linear model (see `EffectSearch`). Every
  fifth trial on average is the next path of Phase 2, because G' may lack the best algorithms.

The documentation of the method lists the departures of `variant=paper`, with reasons.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, inf
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.documents import from_document, to_document
from prefect_tune.optimizers.method import Method, Reason, counted, two_digits
from prefect_tune.optimizers.methods.declarations import FLASH, FlashOptions
from prefect_tune.optimizers.methods.flash.cost import PathCost
from prefect_tune.optimizers.methods.flash.design import PathTable, design_order
from prefect_tune.optimizers.methods.flash.scores import EffectSearch, PathScores, ranked
from prefect_tune.optimizers.methods.flash.shared_values import VARIED_SHARE, SharedValues
from prefect_tune.optimizers.methods.smac import INTERLEAVED, ForestSearch, ForestSettings
from prefect_tune.optimizers.models.seconds import Costs
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.sampling import SpaceExhausted, new_configuration
from prefect_tune.optimizers.space.space import Path, Space, closed_under_passthrough
from prefect_tune.optimizers.trials.history import History, trials_affordable

_KNOWN_SHARE = 0.25
"""Length of Phase 2 after known configurations, as a fraction of their number."""
_SHARE = 0.4
"""Largest fraction of the budget for Phases 1 and 2 together."""
_PAPER_LENGTH = 30
"""Number of trials in Phase 1, and in Phase 2, in the paper."""


def phase_lengths(
    options: FlashOptions,
    table: PathTable,
    capacity: float | None,
    n_known: int = 0,
    *,
    are_enough: bool = False,
) -> tuple[int, int]:
    """Return the numbers of trials in Phases 1 and 2.

    Known configurations, such as a portfolio, run first. If there are as many known configurations
    as trials in Phase 1, or if `are_enough`, the known configurations replace the design. After
    such a replacement, Phase 2 is short, because the known configurations were good in earlier
    studies.

    Args:
        options: Options of the method.
        table: Paths of the space.
        capacity: Number of trials that the budget allows; None if unlimited.
        n_known: Number of known configurations.
        are_enough: Whether an earlier run has made the known configurations sufficient.
    """
    is_paper = options.variant == "paper"
    n_init = n_prune = _PAPER_LENGTH if is_paper else ceil(min(table.rank, len(table)) / 3)
    if (are_enough or n_known >= n_init) and not is_paper:
        n_init, n_prune = n_known, max(1, int(n_known * _KNOWN_SHARE))
    if options.n_init is not None or options.n_prune is not None:
        given = options.n_init, options.n_prune
        return given[0] or n_init, n_prune if given[1] is None else given[1]
    if capacity is not None and not is_paper:
        share = min(1.0, _SHARE * capacity / (n_init + n_prune))
        n_init, n_prune = max(1, int(n_init * share)), max(1, int(n_prune * share))
    return n_init, n_prune


def subspace_of(space: Space, paths: Iterable[Path]) -> dict[str, list[str]]:
    """Return the algorithms of `paths`, and the no-op algorithms that these need, by step."""
    columns = zip(space.searched, zip(*paths, strict=True), strict=True)
    kept = closed_under_passthrough(space.searched, {s.name: set(c) for s, c in columns})
    return {s.name: [a.id for a in s.algorithms if a.id in kept[s.name]] for s in space.searched}


@dataclass
class FlashMemo:
    """Decisions of the phases. A decision is None until it is made.

    Attributes:
        phase: Current phase, 1 to 3.
        design: Path numbers of Phase 1 in order; after Phase 1, only the paths that ran.
        n_init: Number of trials in Phase 1.
        n_prune: Number of trials in Phase 2.
        n_varied: Number of trials in Phase 1 that varied shared values outside the design.
        subspace: Algorithms of G' by step.
        n_subspace_paths: Number of runnable paths in G'.
        notes: Notes for users.
    """

    phase: int = 1
    design: list[int] | None = None
    n_init: int | None = None
    n_prune: int | None = None
    n_varied: int = 0
    subspace: dict[str, list[str]] | None = None
    n_subspace_paths: int | None = None
    notes: list[str] = field(default_factory=list)


class Flash(Optimizer):
    """Fast linear search over paths, followed by Bayesian optimization of the best paths."""

    method: ClassVar[Method] = FLASH

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._decided = FlashMemo()
        self._tuning: ForestSearch | None = None

    @property
    def decisions(self) -> dict[str, Any]:
        """The decisions of all phases so far, as JSON values.

        `n_known` is the number of known configurations, which run first and count toward `n_init`.
        `shared_values` contains the best shared values by model family.
        """
        decided = self._decided
        names = ("phase", "n_init", "n_prune", "n_subspace_paths", "subspace")
        made = ((name, getattr(decided, name)) for name in names)
        decisions: dict[str, Any] = {name: value for name, value in made if value is not None}
        if decided.design is not None and self._table.shared is not None:
            values: dict[str, list[Any]] = defaultdict(list)
            for (kind, step, _), choice in self._scores.best_values(self.history).items():
                values[kind].append({"step": step, **choice.to_json()})
            decisions["shared_values"] = dict(values)
        if self._n_known:
            decisions["n_known"] = self._n_known
        return {**super().decisions, **decisions, "notes": list(decided.notes)}

    def _propose(self, budget: Budget, rng: Generator) -> Query:
        query = self._next(budget, rng)
        self.memo = to_document(self._decided)
        return query

    def _restore(self, memo: Mapping[str, Any]) -> None:
        super()._restore(memo)
        self._decided = from_document(FlashMemo, memo)

    def _next(self, budget: Budget, rng: Generator) -> Query:
        decided, table = self._decided, self._table
        if decided.design is None:
            n, _ = phase_lengths(self.options, table, None)
            decided.design = design_order(table.one_hot, n, rng)
        varied = self._varied(budget, rng)
        phase = decided.phase = self._phase(budget, is_varied=varied is not None)
        if varied is not None:
            decided.n_varied += 1
            why = "a value of a shared step that few trials have used"
            self._because = Reason("shared values", why)
            return Query(varied)
        if table.shared is not None:
            table.best = self._scores.best_values(self.history)
        try:
            if phase == 3:
                return self._tuned(rng)
            return Query(self._designed(rng) if phase == 1 else self._most_promising(rng))
        except SpaceExhausted:
            self._because = Reason("random", "no path of this phase has a new configuration")
            return Query(new_configuration(self.space, self.history.asked, rng))

    def _varied(self, budget: Budget, rng: Generator) -> Configuration | None:
        decided, shared = self._decided, self._table.shared
        if shared is None or decided.n_init is not None or self._uses_ample_prior:
            return None
        holds, n_init = trials_affordable(budget, self.history), self.options.n_init
        most = inf if holds is None else VARIED_SHARE * holds
        if n_init is not None:
            most = n_init / 2 if len(self.history) < n_init else 0
        if decided.n_varied >= most:
            return None
        return shared.untried(self._bases, self.history, rng)

    def _phase(self, budget: Budget, *, is_varied: bool) -> int:
        """Return the phase of this ask. The length of a phase that has ended never changes."""
        decided, table, n = self._decided, self._table, len(self.history)
        if decided.subspace is not None:
            return 3
        holds, n_known = trials_affordable(budget, self.history), self._n_known
        are_enough = self._uses_ample_prior
        n_extra = 0
        if self.options.n_init is None:  # a length set by the user includes all trials of Phase 1
            repeated = () if are_enough else self._repeated
            n_extra = decided.n_varied + sum(known in self.history.asked for known in repeated)
        left = None if holds is None else holds - n_extra
        n_init, n_prune = phase_lengths(self.options, table, left, n_known, are_enough=are_enough)
        if decided.n_init is None:
            if is_varied or n < n_init + n_extra or not self.history.complete:
                return 1
            decided.n_init = n
            decided.design = table.numbers_of(self.history)
        if n < decided.n_init + n_prune:
            return 2
        decided.n_prune = n - decided.n_init
        wanted, n_prune = phase_lengths(self.options, table, None, n_known, are_enough=are_enough)
        if n < wanted + n_extra + n_prune:
            decided.notes.append(
                f"the budget is small: phases 1 and 2 had {decided.n_init} + {decided.n_prune} "
                f"trials instead of {wanted + n_extra} + {n_prune}"
            )
        return 3

    @property
    def _n_known(self) -> int:
        # Number of known configurations, which run first as part of Phase 1.
        return len(self._repeated) if self._uses_ample_prior else len(self._start)

    def _designed(self, rng: Generator) -> Configuration:
        design = self._decided.design or []
        _, configuration = self._first_new(self._rest_of_design(rng), rng)
        why = f"one of {len(design)} paths that reveal most about all {len(self._table):,} paths"
        self._because = Reason("design", why)
        return configuration

    def _rest_of_design(self, rng: Generator) -> list[int]:
        """Return the design's paths that have not run, or all paths, fewest runs first."""
        history, design = self.history, self._decided.design or []
        own = (t for t in history if t.query.configuration not in history.misled)
        asked = Counter(self._table.numbers_of(own))
        unmatched, left = Counter(asked), []
        for i in design:
            if unmatched[i] > 0:
                unmatched[i] -= 1
            else:
                left.append(i)
        everything = map(int, rng.permutation(len(self._table)))
        return left or sorted(everything, key=lambda i: asked[i])

    def _most_promising(self, rng: Generator) -> Configuration:
        """Return a new configuration of the non-excluded path with the largest EIPS.

        Pending paths are excluded. Unless the variant is the paper's, paths that have run are also
        excluded, because Phase 3 tries other values for a path.
        """
        log_ei, log_cost = self._scores.terms(self.history)
        scores = log_ei - log_cost
        waits = self.history.pending if self.is_of_paper else self.history
        scores[self._table.numbers_of(waits)] -= np.ptp(scores) + 1
        i, configuration = self._first_new(ranked(scores, rng), rng)
        gain = two_digits(float(np.exp(log_ei[i])))
        gain += " points" if self.objective.is_percentage else ""
        phase = "expected improvement per second"
        why = f"largest {phase} of {len(scores):,} paths ({gain})"
        self._because = Reason(phase, why)
        return configuration

    def _first_new(self, paths: Iterable[int], rng: Generator) -> tuple[int, Configuration]:
        asked, table = self.history.asked, self._table
        for i in paths:
            if not self.is_of_paper and (first := table.first_run(i)) not in asked:
                return i, first
            try:
                return i, new_configuration(self.space, asked, rng, table.paths[i])
            except SpaceExhausted:
                continue
        raise SpaceExhausted(f"space {self.space.name!r} has no path with a new configuration")

    def _tuned(self, rng: Generator) -> Query:
        """Return the next query within G'.

        The default variant decides on G' again before each query, and every fifth query on average
        is the next path of Phase 2. In the paper, G' is decided once, and the forest learns from
        trials within G' only.
        """
        decided, before = self._decided, self._decided.subspace
        if before is None or not self.is_of_paper:
            self._prune(rng)
        if self._tuning is None or decided.subspace != before:
            self._tuning = self._search()
        if not self.is_of_paper and rng.random() < INTERLEAVED:
            return Query(self._most_promising(rng))
        history = self.history
        if self.is_of_paper:
            inside = {step: set(ids) for step, ids in (decided.subspace or {}).items()}
            history = History(self.history.constraints)
            for trial in self.history:
                path = trial.query.configuration.path
                if all(a in ids for a, ids in zip(path, inside.values(), strict=True)):
                    history.record(trial)
        query, reason = self._tuning.propose(history, rng)
        self._because = Reason("forest", f"{reason.text}, among the paths kept")
        return query

    def _prune(self, rng: Generator) -> None:
        """Decide on G', the product space of the algorithms in the r best paths."""
        decided, paths, wanted = self._decided, self._table.paths, self.options.r
        if len(paths) < wanted and decided.subspace is None:
            n_paths = counted(len(paths), "path")
            decided.notes.append(f"all paths kept: the space has {n_paths}, fewer than r={wanted}")
        log_ei, log_cost = self._scores.terms(self.history, is_next_run=False)
        scores = log_ei - log_cost
        best = ranked(scores, None if self.is_of_paper else rng)[:wanted]
        chosen = [paths[i] for i in best]
        incumbent = self.history.incumbent
        if incumbent is not None and not self.is_of_paper:
            chosen.append(incumbent.query.configuration.path)
        decided.subspace = subspace_of(self.space, chosen)
        decided.n_subspace_paths = self._subspace.n_feasible_paths

    @property
    def _subspace(self) -> Space:
        assert self._decided.subspace is not None  # noqa: S101 - pruned before
        return self.space.restricted_to(self._decided.subspace)

    def _search(self) -> ForestSearch:
        if not self.is_of_paper:
            settings = ForestSettings(n_startup=1, random_share=0.0)
            return EffectSearch(self.space, self.objective, settings, self._subspace)
        settings = ForestSettings(
            n_startup=1,
            forest={"min_samples_split": 10, "max_features": 5 / 6},
            random_share=0.5,
            failure_cost="bound",
            is_log=False,
        )
        return ForestSearch(self.space, self.objective, settings, self._subspace)

    @cached_property
    def _bases(self) -> list[Configuration]:
        table = self._table
        if table.shared is None:
            return []
        return table.shared.bases(table.paths, Costs(self.space, self.objective))

    @cached_property
    def _table(self) -> PathTable:
        shared = None if self.is_of_paper else SharedValues(self.space)
        return PathTable(self.space, self.seed, shared)

    @cached_property
    def _cost(self) -> PathCost:
        return PathCost(self._table.candidates, self.costs)

    @cached_property
    def _scores(self) -> PathScores:
        return PathScores(self.objective, self._table, self._cost, is_paper=self.is_of_paper)
