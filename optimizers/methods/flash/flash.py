"""FLASH: an initial design, pruning of paths by a linear model, and tuning of the remaining paths.

Zhang, Bahadori, Su and Sun, "FLASH: Fast Bayesian Optimization for Data Analytic Pipelines" (KDD
2016), algorithm 1:

    lines 3 to 8, T_init                        Flash._designed, by design_order (eq. 3)
    lines 8 and 16, beta by eq. 1               PathLinear.fit
    lines 11 to 16, T_prune: max EIPS (eq. 4)   Flash._most_promising, by PathScores.terms (eq. 2)
    line 18, G' of the r best paths             Flash._prune, by subspace_of
    lines 20 to 26, T_total                     Flash._tuned, by ForestSearch on all trials
    algorithm 3, cached prefixes                the cache of tasks; PathCost counts cached steps

Departures of the default variant (`variant=paper` undoes all):

- The design starts with the simplest path for each model.
- The first run of a path has default values.
- Hyperparameters of steps common to all paths are searched like algorithms (see `SharedValues`).
  The first trials vary the shared values on the cheapest linear model and the cheapest boosted
  trees. Eq. 1 has columns for shared values, overall and by model family. The first run of a path
  uses the best values so far for the path's model family.
- The cost of a path is its run time, summed over steps.
- G' also includes algorithms with good losses.
- Phases are shorter if the budget is small.
- Eq. 1 has a free intercept, as in the authors' code.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
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
from prefect_tune.optimizers.methods.flash.scores import LEAST_SHARE, PathScores, ranked
from prefect_tune.optimizers.methods.flash.shared_values import VARIED_SHARE, SharedValues
from prefect_tune.optimizers.methods.smac import ForestSearch, ForestSettings, LogCost
from prefect_tune.optimizers.models.seconds import Costs
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.sampling import SpaceExhausted, new_configuration
from prefect_tune.optimizers.space.space import Path, Space, closed_under_passthrough
from prefect_tune.optimizers.space.vectors import Array, Candidates
from prefect_tune.optimizers.trials.history import History, trials_affordable

_DESIGN_SHARE = 0.5
"""Number of known configurations needed to replace the design, as a fraction of the design."""
_KNOWN_SHARE = 0.25
"""Length of Phase 2 after known configurations, as a fraction of their number."""
_KEEP = 0.5
"""Fraction of each step's algorithms that is added to G' by loss."""
_SHARE = 0.4
"""Fraction of a small budget for Phases 1 and 2 together."""
_MODELS_SHARE = 0.5
"""Largest fraction of a small budget for one run of each model."""


def phase_lengths(
    options: FlashOptions,
    table: PathTable,
    capacity: float | None,
    n_known: int = 0,
    *,
    are_enough: bool = False,
) -> tuple[int, int]:
    """Return the numbers of trials in Phases 1 and 2.

    Known configurations, such as a portfolio, run first. If there are at least half as many known
    configurations as paths in the design, or if `are_enough`, the known configurations replace the
    design. After such a replacement, Phase 2 is short, because the known configurations were good
    in earlier studies.

    Args:
        options: Options of the method.
        table: Paths of the space.
        capacity: Number of trials that the budget allows; None if unlimited.
        n_known: Number of known configurations.
        are_enough: Whether an earlier run has made the known configurations sufficient.
    """
    rank, is_paper = min(table.rank, len(table)), options.variant == "paper"
    n_init = n_prune = rank
    if (are_enough or n_known >= rank * _DESIGN_SHARE) and not is_paper:
        n_init, n_prune = n_known, max(1, int(n_known * _KNOWN_SHARE))
    n_init = options.n_init if options.n_init is not None else n_init
    n_prune = options.n_prune if options.n_prune is not None else n_prune
    least = 1
    if capacity is not None and not is_paper and options.n_init is None and options.n_prune is None:
        least = 1 if are_enough else min(len(table.plain), int(capacity * _MODELS_SHARE))
        capacity *= _SHARE
    if capacity is None or n_init + n_prune <= capacity:
        return n_init, n_prune
    share = capacity / (n_init + n_prune)
    n_first = min(max(1, least, int(n_init * share)), n_init)
    return n_first, max(min(n_prune, 1), int(n_prune * share))


def subspace_of(
    space: Space, paths: Iterable[Path], history: History, keep: float = 0.0
) -> dict[str, list[str]]:
    """Return the algorithms of `paths` and the best fraction `keep` of each step's algorithms.

    The best algorithms have the lowest loss in `history`.
    """
    complete = sorted(
        [*history.complete, *history.older.subsample()], key=lambda t: (t.loss, t.number)
    )
    kept: dict[str, set[str]] = {}
    for k, (step, column) in enumerate(zip(space.searched, zip(*paths, strict=True), strict=True)):
        kept[step.name] = set(column)
        if keep:
            by_loss = dict.fromkeys(t.query.configuration.path[k] for t in complete)
            kept[step.name].update(islice(by_loss, max(2, ceil(keep * len(step.algorithms)))))
    closed = closed_under_passthrough(space.searched, kept)
    return {
        step.name: [a.id for a in step.algorithms if a.id in closed[step.name]]
        for step in space.searched
    }


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


_EXPENSIVE = 2.0
"""Multiple of the median run time above which a path waits until the other paths have run."""
_COST_POWER = 0.5
"""Exponent of the predicted run time in the divisor of the expected improvement in Phase 3."""


class Flash(Optimizer):
    """Fast linear search over paths, followed by Bayesian optimization of the best paths."""

    method: ClassVar[Method] = FLASH

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._decided = FlashMemo()

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
            n = self.options.n_init if self.options.n_init is not None else table.rank
            # The paper's design starts at random; the default design starts with a plain path per
            # model.
            plain = sorted(table.plain, key=lambda i: table.default(i) not in self._bases)
            start = [] if self.is_of_paper else plain[:n]
            decided.design = design_order(table.one_hot, n, rng, start)
        varied = self._varied(budget, rng)
        phase = decided.phase = self._phase(budget, is_varied=varied is not None)
        if varied is not None:
            is_plain = varied.path in {table.paths[i] for i in table.plain}
            # Plain bases are part of the design.
            decided.n_varied += not (is_plain and varied in self._bases)
            why = "a value of a shared step that few trials have used"
            self._because = Reason("shared values", why)
            return Query(varied)
        if decided.subspace is None and table.shared is not None:
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
        """Return the design's paths that have not run, expensive paths last.

        If all paths have run, return all paths, fewest runs first.
        """
        history, design = self.history, self._decided.design or []
        own = (t for t in history if t.query.configuration not in history.misled)
        asked = Counter(self._table.numbers_of(own))
        unmatched, left = Counter(asked), []
        for i in design:
            if unmatched[i] > 0:
                unmatched[i] -= 1
            else:
                left.append(i)
        if not left:
            return sorted(map(int, rng.permutation(len(self._table))), key=lambda i: asked[i])
        if self.is_of_paper or not history.complete:
            return left
        seconds = self._scores.seconds(history)
        ran = [seconds[i] for i in set(design).difference(left)]
        limit = _EXPENSIVE * float(np.median(ran or seconds))
        expensive = sorted((i for i in left if seconds[i] > limit), key=lambda i: seconds[i])
        return [*(i for i in left if seconds[i] <= limit), *expensive]

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
        # The paper divides by the logarithm of the run time.
        seconds = f" in {two_digits(float(np.exp(log_cost[i])))} s" if not self.is_of_paper else ""
        phase = "expected improvement per second"
        why = f"largest {phase} of {len(scores):,} paths ({gain}{seconds})"
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
        """Return the next query within G', proposed by a forest fitted to all trials."""
        if self._decided.subspace is None:
            self._prune(rng)
        query, reason = self._tuning.propose(self.history, rng, self._log_cost())
        self._because = Reason("forest", f"{reason.text}, among the paths kept")
        return query

    def _prune(self, rng: Generator) -> None:
        """Decide on G', the product space of the algorithms in the r best paths."""
        decided, paths, wanted = self._decided, self._table.paths, self.options.r
        if len(paths) < wanted:
            n_paths = counted(len(paths), "path")
            decided.notes.append(f"all paths kept: the space has {n_paths}, fewer than r={wanted}")
        log_ei, log_cost = self._scores.terms(self.history, is_next_run=False)
        scores = log_ei - log_cost
        best = ranked(scores, None if self.is_of_paper else rng)[:wanted]
        chosen = [paths[i] for i in best]
        incumbent = self.history.incumbent
        if incumbent is not None and not self.is_of_paper:
            chosen.append(incumbent.query.configuration.path)
        keep = self.options.keep
        if keep is None:
            keep = 0.0 if self.is_of_paper else _KEEP
        decided.subspace = subspace_of(self.space, chosen, self.history, keep)
        decided.n_subspace_paths = self._subspace.n_feasible_paths

    def _log_cost(self) -> LogCost | None:
        """Return a function for the log divisor of expected improvement; None for no divisor.

        In a race with partial evaluations, expected improvement has no divisor: partial evaluations
        take about equally long, and models that are fast on all rows are seldom the best. The
        smallest divisor is the same in all calls.
        """
        if self.is_of_paper or self.has_partial_runs:
            return None
        predicted = self._cost.after(self.history)
        least = LEAST_SHARE * float(self._scores.seconds(None).mean())

        def log_cost(candidates: Candidates, features: Array) -> Array:
            return _COST_POWER * np.log(np.maximum(predicted(candidates, features), least))

        return log_cost

    @property
    def _subspace(self) -> Space:
        assert self._decided.subspace is not None  # noqa: S101 - pruned before
        return self.space.restricted_to(self._decided.subspace)

    @cached_property
    def _tuning(self) -> ForestSearch:
        settings = ForestSettings(n_startup=1)
        if self.is_of_paper:
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
