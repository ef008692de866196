"""FLASH: design, pruning of paths by a linear model, then tuning of what is left.

Zhang, Bahadori, Su and Sun, "FLASH: Fast Bayesian Optimization for Data Analytic Pipelines" (KDD
2016), algorithm 1:

    lines 3 to 8, T_init                        Flash._designed, by initial_design (eq. 3)
    lines 8 and 16, beta by eq. 1               PathLinear.fit
    lines 11 to 16, T_prune: max EIPS (eq. 4)   Flash._most_promising, by PathScores.terms (eq. 2)
    line 18, G' of the r best paths             Flash._prune, by subspace_of
    lines 20 to 26, T_total                     Flash._tuned, by Tuning on all trials
    algorithm 3, cached prefixes                the cache of tasks; PathCost counts what it serves

Departures, where `variant=paper` has the paper's way: a design that begins with plain paths;
default values at a path's first run; Phase 2 begins with other values of the steps that all paths
share; cost by steps in seconds; G' has algorithms with good losses besides; lengths of phases
shrink with the budget; eq. 1 has a free intercept, as in the authors' code.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Method, Reason, two_digits
from prefect_tune.optimizers.methods.flash.declaration import FLASH
from prefect_tune.optimizers.methods.flash.phases import (
    initial_design,
    phase_lengths,
    rest_of_design,
    subspace_of,
    wanted_lengths,
)
from prefect_tune.optimizers.methods.flash.scores import PathModels, ranked
from prefect_tune.optimizers.methods.flash.tuning import Tuning
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.paths.table import shared_choices, untried_variants
from prefect_tune.optimizers.space.configuration import Choice, Configuration, Query
from prefect_tune.optimizers.space.sampling import SpaceExhausted, new_configuration
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.trials.history import capacity
from prefect_tune.optimizers.trials.objective import MANY_ROWS


@dataclass
class FlashMemo:
    """Decisions of the phases, None until they are made; paths stand by their index.

    Attributes:
        phase: The phase of the last ask.
        design: Paths of Phase 1 in order; once it has ended, those that ran.
        n_init: Length of Phase 1.
        n_prune: Length of Phase 2.
        shared: By step that all paths share, its best choice; empty where there is nothing to
            choose.
        ranking: The r best paths, best first, with their ln EIPS at xi = 0.
        subspace: By step, the algorithms of G'.
        n_subspace_paths: Paths of G' that can run.
        notes: Messages for people.
    """

    phase: int = 1
    design: list[int] | None = None
    n_init: int | None = None
    n_prune: int | None = None
    shared: dict[str, Choice] | None = None
    ranking: list[tuple[int, float]] | None = None
    subspace: dict[str, list[str]] | None = None
    n_subspace_paths: int | None = None
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return what has been decided as JSON values."""
        document: dict[str, Any] = {"phase": self.phase}
        for name in ("design", "n_init", "n_prune", "n_subspace_paths"):
            if getattr(self, name) is not None:
                document[name] = getattr(self, name)
        if self.shared is not None:
            document["shared"] = self._shared_json()
        if self.ranking is not None:
            document["ranking"] = [[path, score] for path, score in self.ranking]
        if self.subspace is not None:
            document["subspace"] = {step: list(ids) for step, ids in self.subspace.items()}
        if self.notes:
            document["notes"] = list(self.notes)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        memo = cls(**document)
        if "shared" in document:
            found = document["shared"] or {}
            memo.shared = {step: Choice.from_json(choice) for step, choice in found.items()}
        if memo.ranking is not None:
            memo.ranking = [(path, score) for path, score in memo.ranking]
        memo.notes = list(memo.notes)
        return memo

    def rendered(self, paths: Sequence[Path]) -> dict[str, Any]:
        """Return `Flash.decisions`: the same with paths as lists of algorithm ids."""
        decisions: dict[str, Any] = {"phase": self.phase}
        for name in ("n_init", "n_prune", "n_subspace_paths"):
            if getattr(self, name) is not None:
                decisions[name] = getattr(self, name)
        if self.shared:
            decisions["shared"] = self._shared_json()
        if self.subspace is not None:
            decisions["subspace"] = self.subspace
        if self.design is not None:
            decisions["design"] = [list(paths[i]) for i in self.design]
        if self.ranking is not None:
            decisions["ranking"] = [
                {"path": list(paths[i]), "log_eips": score} for i, score in self.ranking
            ]
        return decisions | {"notes": list(self.notes)}

    def _shared_json(self) -> dict[str, Any] | None:
        chosen = self.shared or {}
        return {step: choice.to_json() for step, choice in chosen.items()} or None


_SHARED = Reason(
    "shared steps", "the best so far with another value of a step that all paths share"
)
_NOTHING_ELSE = Reason("random", "no other path has anything new")


class Flash(Optimizer):
    """Fast linear search over paths, then Bayesian optimisation of the best of them."""

    method: ClassVar[Method] = FLASH

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._is_power_given = self.options.cost_power is not None
        self.options = self.options.resolved()
        self._decided = FlashMemo()
        self._made: PathModels | None = None

    @property
    def decisions(self) -> dict[str, Any]:
        """The decisions of each phase so far, as JSON values.

        `phase` (1 to 3), `n_known` if it began with known configurations, `n_init` (these among
        them) and `n_prune` once they are settled, `design` and `ranking` (the
        r best paths with their ln EIPS at xi = 0, best first) as lists of algorithm ids, `shared`
        (by step that all paths share, what their first runs have), `subspace` (G') by step,
        `n_subspace_paths`, and `notes` for people.
        """
        is_blank = self._decided.design is None
        rendered = self._decided.rendered(() if is_blank else self._models.table.paths)
        return {**rendered, "n_known": len(self._start)} if self._start else rendered

    def _propose(self, budget: Budget, rng: np.random.Generator) -> Query:
        query = self._next(budget, rng)
        self.memo = self._decided.to_json()
        return query

    def _restore(self, memo: Mapping[str, Any]) -> None:
        super()._restore(memo)
        self._decided = FlashMemo.from_json(memo)

    def _next(self, budget: Budget, rng: np.random.Generator) -> Query:
        if self._decided.design is None:
            self._decided.design = initial_design(self.options, self._models.table, rng)
        phase = self._decided.phase = self._phase(budget)
        try:
            if phase == 3:
                return self._tuned(rng)
            if phase == 2 and (variant := self._variant()) is not None:
                self._because = _SHARED
                return Query(variant)
            return Query(self._designed(rng) if phase == 1 else self._most_promising(rng))
        except SpaceExhausted:
            self._because = _NOTHING_ELSE
            return Query(new_configuration(self.space, self.history.asked, rng))

    def _phase(self, budget: Budget) -> int:
        """Return the phase of this ask; a settled length stays, whatever the budget says later."""
        decided, table, n = self._decided, self._models.table, len(self.history)
        if decided.subspace is not None:
            return 3
        holds, n_known = capacity(budget, self.history), len(self._start)
        lengths = phase_lengths(self.options, table, holds, n_known)
        if decided.n_init is None:
            if n < lengths.n_init or not self.history.complete:
                return 1
            decided.n_init = n
            decided.design = table.numbers_of(self.history)
        if n < decided.n_init + lengths.n_prune:
            return 2
        decided.n_prune = n - decided.n_init
        wanted = wanted_lengths(self.options, table, n_known)
        if n < wanted.n_init + wanted.n_prune:
            decided.notes.append(
                f"the budget holds too few trials for phases of {wanted.n_init} + "
                f"{wanted.n_prune}; they are {decided.n_init} + {decided.n_prune}"
            )
        return 3

    def _designed(self, rng: np.random.Generator) -> Configuration:
        """Return the next configuration of the design.

        Raises:
            SpaceExhausted: If there is none.
        """
        design = self._decided.design
        assert design is not None  # noqa: S101 - made by the first ask
        paths = rest_of_design(design, self.options, self._models, self.history, rng)
        _, configuration = self._first_new(paths, rng)
        said = f"one of {len(design)} paths that tell most about all {len(self._models.table):,}"
        self._because = Reason("design", said)
        return configuration

    def _most_promising(self, rng: np.random.Generator) -> Configuration:
        """Return a configuration of the path of largest EIPS that need not wait for all others.

        These are paths under way, and with default values those that have run: what more values
        of a path are worth is for Phase 3 to find out.

        Raises:
            SpaceExhausted: If there is none.
        """
        log_ei, log_cost = self._models.scores.terms(self.history)
        scores = log_ei - log_cost
        waits = self.history if self.options.start == "defaults" else self.history.pending
        scores[self._models.table.numbers_of(waits)] -= np.ptp(scores) + 1
        i, configuration = self._first_new(ranked(scores, rng), rng)
        per_second = "" if self.options.cost == "none" else " per second"
        phase, gain = f"expected improvement{per_second}", two_digits(float(np.exp(log_ei[i])))
        gain += " points" if self.objective.unit == "percent" else ""
        # The other rules divide by what is no time.
        is_time = self.options.cost == "steps"
        seconds = f" in {two_digits(float(np.exp(log_cost[i])))} s" if is_time else ""
        said = f"largest {phase} of {len(scores):,} paths ({gain}{seconds})"
        self._because = Reason(phase, said)
        return configuration

    def _variant(self) -> Configuration | None:
        """Return the best so far with another value of what all paths share, if one is untried.

        What is best then is where the first run of each path starts from.
        """
        incumbent = self.history.incumbent
        is_settled = self._decided.shared is not None
        if is_settled or self.options.start != "defaults" or incumbent is None:
            return None
        best = incumbent.query.configuration
        variant = next(untried_variants(self.space, best, self.history.asked), None)
        known = [t.query.configuration for t in self.history if t.is_told]
        if variant is None and next(untried_variants(self.space, best, known), None) is None:
            self._decided.shared = shared_choices(self.space, best)
        return variant

    def _first_new(
        self, paths: Iterable[int], rng: np.random.Generator
    ) -> tuple[int, Configuration]:
        """Return the first of the paths that has new hyperparameters, and these.

        Raises:
            SpaceExhausted: If none of them has.
        """
        asked, table = self.history.asked, self._models.table
        for i in paths:
            if self.options.start == "defaults" and table.default(i) not in asked:
                return i, table.default(i)
            try:
                return i, new_configuration(self.space, asked, rng, table.paths[i])
            except SpaceExhausted:
                continue
        raise SpaceExhausted(f"no path of space {self.space.name!r} has a new configuration")

    def _tuned(self, rng: np.random.Generator) -> Query:
        """Return the next query of Phase 3."""
        if self._decided.subspace is None:
            self._prune(rng)
        query, self._because = self._tuning.propose(self.history, rng)
        return query

    def _prune(self, rng: np.random.Generator) -> None:
        """Settle the ranking and G', the product of the algorithms of the r best paths."""
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

    @property
    def _models(self) -> PathModels:
        """Tables and models of the paths, made again when what they share has been settled."""
        shared = self._decided.shared or {}
        if self._made is None or self._made.shared != shared:
            parts = self.space, self.seed, self.objective, self.options
            costs = self.costs if (self.objective.n_rows or 0) > MANY_ROWS else None
            self._made = PathModels(*parts, shared, costs=costs)
        return self._made
