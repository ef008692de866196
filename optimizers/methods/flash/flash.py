"""FLASH: a design, pruning of paths by a linear model, then tuning of the rest.

Zhang, Bahadori, Su and Sun, "FLASH: Fast Bayesian Optimization for Data Analytic Pipelines" (KDD
2016), algorithm 1:

    lines 3 to 8, T_init                        Flash._designed, by initial_design (eq. 3)
    lines 8 and 16, beta by eq. 1               PathLinear.fit
    lines 11 to 16, T_prune: max EIPS (eq. 4)   Flash._most_promising, by PathScores.terms (eq. 2)
    line 18, G' of the r best paths             Flash._prune, by subspace_of
    lines 20 to 26, T_total                     Flash._tuned, by Tuning on all trials
    algorithm 3, cached prefixes                the cache of tasks; PathCost counts cached steps

Departures of the default (`variant=paper` undoes all): the design starts with plain paths. A path
first runs with default values. Hyperparameters of steps that every path passes are searched like
algorithms (see `SharedValues`). The first trials vary them on the cheapest linear model and the
cheapest boosted trees. Eq. 1 has columns for them, with interactions by kind of model. A path first
runs with the shared values that look best for its kind. Costs are summed over steps, in seconds. G'
also has algorithms with good losses. Phases shrink with the budget. Eq. 1 has a free intercept, as
in the authors' code.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.converter import from_document, to_document
from prefect_tune.optimizers.method import Method, Reason, two_digits
from prefect_tune.optimizers.methods.flash.declaration import FLASH
from prefect_tune.optimizers.methods.flash.phases import (
    Tuning,
    initial_design,
    phase_lengths,
    rest_of_design,
    subspace_of,
    wanted_lengths,
)
from prefect_tune.optimizers.methods.flash.scores import PathModels, ranked
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.paths.shared_values import VARIED_SHARE
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.sampling import SpaceExhausted, new_configuration
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.surrogates.costs import Costs
from prefect_tune.optimizers.trials.history import trials_affordable
from prefect_tune.optimizers.trials.objective import MANY_ROWS


@dataclass
class FlashMemo:
    """Decisions of the phases, None before they are made; paths are given by index.

    Attributes:
        design: Paths of Phase 1 in order; after Phase 1, those that ran.
        n_varied: Trials of Phase 1, outside the design, that varied shared values.
        ranking: The r best paths, best first, with their ln EIPS at xi = 0.
        subspace, n_subspace_paths: Algorithms of G' by step, and the number of its runnable paths.
    """

    phase: int = 1
    design: list[int] | None = None
    n_init: int | None = None
    n_prune: int | None = None
    n_varied: int = 0
    ranking: list[tuple[int, float]] | None = None
    subspace: dict[str, list[str]] | None = None
    n_subspace_paths: int | None = None
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the phase and the decisions made, as JSON values."""
        undecided, document = to_document(FlashMemo()), to_document(self)
        made = {name: value for name, value in document.items() if value != undecided[name]}
        return {"phase": self.phase, **made}

    def rendered(self, paths: Sequence[Path]) -> dict[str, Any]:
        """Return `Flash.decisions`, with paths as lists of algorithm ids."""
        names = ("phase", "n_init", "n_prune", "n_subspace_paths", "subspace")
        known = ((name, getattr(self, name)) for name in names)
        decisions: dict[str, Any] = {name: value for name, value in known if value is not None}
        if self.design is not None:
            decisions["design"] = [list(paths[i]) for i in self.design]
        if self.ranking is not None:
            decisions["ranking"] = [
                {"path": list(paths[i]), "log_eips": score} for i, score in self.ranking
            ]
        return decisions | {"notes": list(self.notes)}


_SHARED = Reason("shared values", "a value of a shared step that few trials have had")
_NOTHING_ELSE = Reason("random", "no other path has anything new")


class Flash(Optimizer):
    """Fast linear search over paths, then Bayesian optimisation of the best of them."""

    method: ClassVar[Method] = FLASH

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._is_power_given = self.options.cost_power is not None
        self.options = self.options.resolved()
        self._decided = FlashMemo()

    @property
    def decisions(self) -> dict[str, Any]:
        """The decisions of each phase so far, as JSON values; paths are lists of algorithm ids.

        `n_known` counts the known configurations that ran first; `n_init` includes them. `ranking`
        has the r best paths with their ln EIPS at xi = 0. `shared_values` are the best by kind of
        model.
        """
        is_blank = self._decided.design is None
        rendered = self._decided.rendered(() if is_blank else self._models.table.paths)
        if not is_blank and self._models.table.shared is not None:
            values: dict[str, list[Any]] = defaultdict(list)
            for (kind, step, _), choice in self._models.scores.best_values(self.history).items():
                values[kind].append({"step": step, **choice.to_json()})
            rendered["shared_values"] = dict(values)
        if self._n_known:
            rendered["n_known"] = self._n_known
        return {**super().decisions, **rendered}

    def _propose(self, budget: Budget, rng: Generator) -> Query:
        query = self._next(budget, rng)
        self.memo = self._decided.to_json()
        return query

    def _restore(self, memo: Mapping[str, Any]) -> None:
        super()._restore(memo)
        self._decided = from_document(FlashMemo, memo)

    def _next(self, budget: Budget, rng: Generator) -> Query:
        decided, table = self._decided, self._models.table
        if decided.design is None:
            decided.design = initial_design(self.options, table, self._bases, rng)
        varied = self._varied(budget, rng)
        phase = decided.phase = self._phase(budget, is_varied=varied is not None)
        if varied is not None:
            is_base = varied in self._bases
            is_plain = is_base and varied.path in {table.paths[i] for i in table.plain}
            decided.n_varied += not is_plain  # the design covers plain paths
            self._because = _SHARED
            return Query(varied)
        if decided.subspace is None:
            self._models.learn(self.history)
        try:
            if phase == 3:
                return self._tuned(rng)
            return Query(self._designed(rng) if phase == 1 else self._most_promising(rng))
        except SpaceExhausted:
            self._because = _NOTHING_ELSE
            return Query(new_configuration(self.space, self.history.asked, rng))

    def _varied(self, budget: Budget, rng: Generator) -> Configuration | None:
        decided, table = self._decided, self._models.table
        if table.shared is None or decided.n_init is not None or self._uses_ample_prior:
            return None
        holds, n_init = trials_affordable(budget, self.history), self.options.n_init
        most = inf if holds is None else VARIED_SHARE * holds
        if n_init is not None:
            most = n_init / 2 if len(self.history) < n_init else 0
        if decided.n_varied >= most:
            return None
        bases = table.shared.working(self._bases, self.history)
        return table.shared.untried(bases, self.history.asked, rng)

    @cached_property
    def _bases(self) -> list[Configuration]:
        table = self._models.table
        if table.shared is None:
            return []
        return table.shared.bases(table.paths, Costs(self.space, self.objective))

    def _phase(self, budget: Budget, *, is_varied: bool) -> int:
        """Phase of this ask; a length, once fixed, ignores later budgets."""
        decided, table, n = self._decided, self._models.table, len(self.history)
        if decided.subspace is not None:
            return 3
        holds, n_known = trials_affordable(budget, self.history), self._n_known
        are_enough = self._uses_ample_prior
        n_extra = decided.n_varied
        if not are_enough:
            n_extra += sum(known in self.history.asked for known in self._repeated)
        # A given length counts all trials of Phase 1.
        n_extra = n_extra if self.options.n_init is None else 0
        left = None if holds is None else holds - n_extra
        lengths = phase_lengths(self.options, table, left, n_known, are_enough=are_enough)
        if decided.n_init is None:
            if is_varied or n < lengths.n_init + n_extra or not self.history.complete:
                return 1
            decided.n_init = n
            decided.design = table.numbers_of(self.history)
        if n < decided.n_init + lengths.n_prune:
            return 2
        decided.n_prune = n - decided.n_init
        wanted = wanted_lengths(self.options, table, n_known, are_enough=are_enough)
        n_wanted = wanted.n_init + n_extra
        if n < n_wanted + wanted.n_prune:
            decided.notes.append(
                f"the budget holds too few trials for phases of {n_wanted} + "
                f"{wanted.n_prune}; they are {decided.n_init} + {decided.n_prune}"
            )
        return 3

    @property
    def _n_known(self) -> int:
        # They run first, and count as part of Phase 1.
        return len(self._repeated) if self._uses_ample_prior else len(self._start)

    def _designed(self, rng: Generator) -> Configuration:
        design = self._decided.design
        assert design is not None  # noqa: S101 - made by the first ask
        paths = rest_of_design(design, self.options, self._models, self.history, rng)
        _, configuration = self._first_new(paths, rng)
        why = f"one of {len(design)} paths that tell most about all {len(self._models.table):,}"
        self._because = Reason("design", why)
        return configuration

    def _most_promising(self, rng: Generator) -> Configuration:
        """New configuration of the path of largest EIPS that is not excluded.

        Pending paths are excluded. With default values, paths that have run are excluded too,
        because Phase 3 tries further values of a path.
        """
        log_ei, log_cost = self._models.scores.terms(self.history)
        scores = log_ei - log_cost
        waits = self.history if self.options.start == "defaults" else self.history.pending
        scores[self._models.table.numbers_of(waits)] -= np.ptp(scores) + 1
        i, configuration = self._first_new(ranked(scores, rng), rng)
        per_second = "" if self.options.cost == "none" else " per second"
        phase, gain = f"expected improvement{per_second}", two_digits(float(np.exp(log_ei[i])))
        gain += " points" if self.objective.is_percentage else ""
        # The other rules do not divide by seconds.
        is_time = self.options.cost == "steps"
        seconds = f" in {two_digits(float(np.exp(log_cost[i])))} s" if is_time else ""
        why = f"largest {phase} of {len(scores):,} paths ({gain}{seconds})"
        self._because = Reason(phase, why)
        return configuration

    def _first_new(self, paths: Iterable[int], rng: Generator) -> tuple[int, Configuration]:
        asked, table = self.history.asked, self._models.table
        for i in paths:
            if self.options.start == "defaults" and (first := table.first_run(i)) not in asked:
                return i, first
            try:
                return i, new_configuration(self.space, asked, rng, table.paths[i])
            except SpaceExhausted:
                continue
        raise SpaceExhausted(f"no path of space {self.space.name!r} has a new configuration")

    def _tuned(self, rng: Generator) -> Query:
        if self._decided.subspace is None:
            self._prune(rng)
        query, self._because = self._tuning.propose(self.history, rng)
        return query

    def _prune(self, rng: Generator) -> None:
        """Fix the ranking and G', the product of the algorithms of the r best paths."""
        paths = self._models.table.paths
        if not self.options.pruning:
            self._decided.subspace = subspace_of(self.space, paths, self.history)
        else:
            r = min(self.options.r, len(paths))
            if r < self.options.r:
                self._decided.notes.append(
                    f"r is {self.options.r}, and the paths are {r}: all are kept"
                )
            scores = self._models.scores.log_eips_of_many_runs(self.history)
            best = ranked(scores, None if self.options.is_paper else rng)[:r]
            self._decided.ranking = [(i, float(scores[i])) for i in best]
            chosen = [paths[i] for i in best]
            incumbent = self.history.incumbent
            if incumbent is not None and not self.options.is_paper:
                chosen.append(incumbent.query.configuration.path)
            keep = self.options.keep
            self._decided.subspace = subspace_of(self.space, chosen, self.history, keep)
        self._decided.n_subspace_paths = self._subspace.n_feasible_paths

    @property
    def _subspace(self) -> Space:
        assert self._decided.subspace is not None  # noqa: S101 - pruned before
        return self.space.restricted_to(self._decided.subspace)

    @cached_property
    def _tuning(self) -> Tuning:
        options = self.options
        if self.has_looks and not self._is_power_given:
            options = replace(options, cost_power=0.0)
        return Tuning(self.space, self._subspace, self.objective, options, self._models.cost)

    @cached_property
    def _models(self) -> PathModels:
        costs = self.costs if (self.objective.n_rows or 0) > MANY_ROWS else None
        return PathModels(self.space, self.seed, self.objective, self.options, costs=costs)
