"""FLASH: design, pruning of paths by a linear model, then tuning of what is left.

Zhang, Bahadori, Su and Sun, "FLASH: Fast Bayesian Optimization for Data Analytic Pipelines" (KDD
2016), algorithm 1. Phase 1 runs an optimal design over the paths, Phase 2 the paths of largest
expected improvement per cost, and Phase 3 tunes the sub-space G' of the best paths' algorithms with
a surrogate fitted on all trials.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.flash.declaration import FLASH
from prefect_tune.optimizers.methods.flash.phase_lengths import (
    PhaseLengths,
    capacity,
    phase_lengths,
)
from prefect_tune.optimizers.methods.flash.scores import LEAST_SHARE, PathScores, ranked
from prefect_tune.optimizers.methods.smac.declaration import SmacOptions
from prefect_tune.optimizers.methods.smac.forest_search import ForestSearch, LogCost
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.paths.cost import PathCost
from prefect_tune.optimizers.paths.design import design_order, design_rank
from prefect_tune.optimizers.paths.shared_steps import shared_choices, untried_variants
from prefect_tune.optimizers.paths.table import PathTable
from prefect_tune.optimizers.space.candidates import Candidates, CandidateSpace
from prefect_tune.optimizers.space.configuration import Choice, Configuration
from prefect_tune.optimizers.space.query import Query
from prefect_tune.optimizers.space.sampling import SpaceExhausted, new_configuration
from prefect_tune.optimizers.space.space import Path, Space

if TYPE_CHECKING:
    from prefect_tune.optimizers.methods.tpe.parzen_search import ParzenSearch

__all__ = ["Flash"]

_SHARE = 0.4
"""Of a small budget, Phases 1 and 2 take this much together."""
_MODELS_SHARE = 0.5
"""Of a still smaller one, this much is for seeing each model once."""
_INSTANT_SECONDS = 1e-9

_DEAR = 2.0
"""A path of the design that is predicted to take this many medians waits until the others ran."""


class Flash(Optimizer):
    """Fast linear search over paths, then Bayesian optimisation of the best of them."""

    method: ClassVar[Method] = FLASH

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.options = self.options.resolved()
        self._decided: dict[str, Any] = {}
        """What the phases decided, paths by their index: the memo, and what `decisions` renders."""

    @property
    def decisions(self) -> dict[str, Any]:
        """What each phase decided so far, as JSON values.

        `phase` (1 to 3), `n_init` and `n_prune` once they are settled, `design` and `ranking` (the
        r best paths with their ln EIPS at xi = 0, best first) as lists of algorithm ids, `shared`
        (by step that all paths share, what their first runs have), `subspace` (G') by step,
        `n_subspace_paths`, and `notes` for people.
        """
        decided = self._decided
        rendered: dict[str, Any] = {"phase": decided.get("phase", 1)}
        for name in ("n_init", "n_prune", "n_subspace_paths", "shared", "subspace"):
            if decided.get(name) is not None:
                rendered[name] = decided[name]
        if "design" in decided:
            rendered["design"] = [list(self._table.paths[i]) for i in decided["design"]]
        if "ranking" in decided:
            rendered["ranking"] = [
                {"path": list(self._table.paths[i]), "log_eips": score}
                for i, score in decided["ranking"]
            ]
        rendered["notes"] = decided.get("notes", [])
        return rendered

    def _propose(self, budget: Budget, rng: np.random.Generator) -> Query:
        configuration = self._next(budget, rng)
        self.memo = dict(self._decided)
        return Query(configuration)

    def _restore(self, memo: Mapping[str, Any] | None) -> None:
        super()._restore(memo)
        if memo is not None:
            self._decide(memo)

    def _next(self, budget: Budget, rng: np.random.Generator) -> Configuration:
        if "design" not in self._decided:
            self._decided["design"] = self._design(rng)
        phase = self._phase(budget)
        self._decided["phase"] = phase
        try:
            if phase == 3:
                return self._tuned(rng)
            if phase == 2 and (variant := self._variant()) is not None:
                return variant
            paths = self._design_left(rng) if phase == 1 else self._ranked_paths(rng)
            return self._configuration(paths, rng)
        except SpaceExhausted:
            return new_configuration(self.space, self._asked, rng)

    def _phase(self, budget: Budget) -> int:
        """Where this ask falls; what is settled stays so, whatever the budget says later."""
        decided, n = self._decided, len(self.history)
        if "subspace" in decided:
            return 3
        lengths = self._lengths(budget)
        if "n_init" not in decided:
            if n < lengths.n_init or not self.history.complete:
                return 1
            decided["n_init"] = n
            decided["design"] = self._table.numbers_of(self.history)
        if n < decided["n_init"] + lengths.n_prune:
            return 2
        decided["n_prune"] = n - decided["n_init"]
        wanted = self._wanted
        if n < wanted.n_init + wanted.n_prune:
            self._note(
                f"the budget holds too few trials for phases of {wanted.n_init} + "
                f"{wanted.n_prune}; they are {decided['n_init']} + {decided['n_prune']}"
            )
        return 3

    @property
    def _wanted(self) -> PhaseLengths:
        """Both phases in a budget that is large enough."""
        given = self.options
        rank = min(
            design_rank(self._table.one_hot.shape[1], len(self.space.searched)), len(self._table)
        )
        n_init = given.n_init if given.n_init is not None else rank
        n_prune = given.n_prune if given.n_prune is not None else rank
        return PhaseLengths(n_init, n_prune if given.pruning else 0)

    def _lengths(self, budget: Budget) -> PhaseLengths:
        """Both phases for this budget: all of it where lengths were given, else a share of it."""
        given = self.options
        holds = capacity(budget, self.history)
        if holds is None or given.is_paper or given.n_init is not None or given.n_prune is not None:
            return phase_lengths(self._wanted, holds)
        least = len(self._table.plain) if given.design == "plain_first" else 1
        return phase_lengths(self._wanted, holds * _SHARE, min(least, int(holds * _MODELS_SHARE)))

    def _note(self, text: str) -> None:
        self._decided["notes"] = [*self._notes, text]

    @property
    def _notes(self) -> list[str]:
        notes: list[str] = self._decided.get("notes", [])
        return notes

    def _design(self, rng: np.random.Generator) -> list[int]:
        given = self.options
        n_init = given.n_init
        if n_init is None:
            n_init = design_rank(self._table.one_hot.shape[1], len(self.space.searched))
        assert given.design is not None  # noqa: S101 - resolved at construction
        if given.design == "plain_first":
            start = self._table.plain[:n_init]
            return design_order(self._table.one_hot, n_init, "d_optimal", rng, start)
        return design_order(self._table.one_hot, n_init, given.design, rng)

    def _ranked_paths(self, rng: np.random.Generator) -> list[int]:
        """Indices of paths by falling EIPS, those that must wait for all others at the end.

        These are paths under way, and with default values those that have run: what more values
        of a path are worth is for Phase 3 to find out.
        """
        scores = self._scores.log_eips(self.history)
        waits = self.history if self.options.start == "defaults" else self.history.pending
        scores[self._table.numbers_of(waits)] -= np.ptp(scores) + 1
        return ranked(scores, rng)

    def _variant(self) -> Configuration | None:
        """The best so far with another value of what all paths share, while there is any.

        What is best then is where the first run of each path starts from.
        """
        incumbent = self.history.incumbent
        if "shared" in self._decided or self.options.start != "defaults" or incumbent is None:
            return None
        best = incumbent.query.configuration
        variant = next(untried_variants(self.space, best, self._asked), None)
        known = [t.query.configuration for t in self.history if t.is_told]
        if variant is None and next(untried_variants(self.space, best, known), None) is None:
            chosen = shared_choices(self.space, best)
            shared = {step: choice.to_json() for step, choice in chosen.items()}
            self._decide({**self._decided, "shared": shared or None})
        return variant

    def _decide(self, decided: Mapping[str, Any]) -> None:
        """Go by these decisions; what was made for other shared steps is made again."""
        is_stale = decided.get("shared") != self._decided.get("shared")
        self._decided = dict(decided)
        if is_stale:
            for made in ("_table", "_path_cost", "_scores"):
                self.__dict__.pop(made, None)

    def _design_left(self, rng: np.random.Generator) -> list[int]:
        """Paths of the design not asked for yet, in order, those predicted to be dear at the end.

        When all were asked for, paths at random, those that were asked for least first.
        """
        asked = Counter(self._table.numbers_of(self.history))
        ran_paths, left = Counter(asked), []
        for i in self._decided["design"]:
            if ran_paths[i] > 0:
                ran_paths[i] -= 1
            else:
                left.append(i)
        if not left:
            return sorted(map(int, rng.permutation(len(self._table))), key=lambda i: asked[i])
        if self.options.cost != "steps" or not self.history.complete:
            return left
        seconds = self._scores.seconds(self.history)
        ran = [seconds[i] for i in set(self._decided["design"]).difference(left)]
        limit = _DEAR * float(np.median(ran or seconds))
        dear = sorted((i for i in left if seconds[i] > limit), key=lambda i: seconds[i])
        return [*(i for i in left if seconds[i] <= limit), *dear]

    def _configuration(self, paths: Iterable[int], rng: np.random.Generator) -> Configuration:
        """New hyperparameters for the first of the paths that has any."""
        asked = self._asked
        for i in paths:
            path = self._table.paths[i]
            if self.options.start == "defaults" and self._table.default(i) not in asked:
                return self._table.default(i)
            try:
                return new_configuration(self.space, asked, rng, path)
            except SpaceExhausted:
                continue
        raise SpaceExhausted(f"no path of space {self.space.name!r} has a new configuration")

    def _tuned(self, rng: np.random.Generator) -> Configuration:
        """Phase 3: the surrogate has seen all trials, its proposals lie in G'."""
        if "subspace" not in self._decided:
            self._prune(rng)
        is_outside = self.options.outside and rng.random() < self.options.outside
        search = self._search_outside if is_outside else self._search
        if isinstance(search, ForestSearch):
            return search.propose(self.history, rng, self._candidate_cost(search.candidates))
        return search.propose(self.history, rng)

    def _candidate_cost(self, space: CandidateSpace) -> LogCost | None:
        """Ln of what divides the expected improvement of candidates in Phase 3."""
        power = self.options.cost_power
        if not power:
            return None
        predicted = self._path_cost.of_candidates(self.history, space)

        def log_cost(candidates: Candidates, features: NDArray[np.float64]) -> NDArray[np.float64]:
            seconds = predicted(candidates, features)
            least = max(LEAST_SHARE * float(seconds.mean()), _INSTANT_SECONDS)
            logarithms: NDArray[np.float64] = power * np.log(np.maximum(seconds, least))
            return logarithms

        return log_cost

    def _prune(self, rng: np.random.Generator) -> None:
        """Settle the ranking and G', the product of the algorithms of the r best paths."""
        if not self.options.pruning:
            chosen: Iterable[Path] = self._table.paths
        else:
            r = min(self.options.r, len(self._table))
            if r < self.options.r:
                self._note(f"r is {self.options.r}, and the paths are {r}: all are kept")
            scores = self._scores.log_eips_of_many_runs(self.history)
            best = ranked(scores, None if self.options.is_paper else rng)[:r]
            self._decided["ranking"] = [[i, float(scores[i])] for i in best]
            chosen = [self._table.paths[i] for i in best]
            incumbent = self.history.incumbent
            if incumbent is not None and not self.options.is_paper:
                chosen.append(incumbent.query.configuration.path)
        kept = [set(column) for column in zip(*chosen, strict=True)]
        if self.options.pruning and self.options.keep:
            kept = [ids | good for ids, good in zip(kept, self._good_algorithms(), strict=True)]
        self._decided["subspace"] = {
            step.name: [a.id for a in step.algorithms if a.id in ids]
            for step, ids in zip(self.space.searched, kept, strict=True)
        }
        self._decided["n_subspace_paths"] = self._subspace.n_feasible_paths

    def _good_algorithms(self) -> list[set[str]]:
        """Of each step the best share of its algorithms, by the least loss observed with them."""
        complete = sorted(self.history.complete, key=lambda t: (t.loss, t.number))
        good = []
        for k, step in enumerate(self.space.searched):
            by_loss = dict.fromkeys(t.query.configuration.path[k] for t in complete)
            n = max(2, ceil(self.options.keep * len(step.algorithms)))
            good.append(set(islice(by_loss, n)))
        return good

    @cached_property
    def _subspace(self) -> Space:
        return self.space.restricted_to(self._decided["subspace"])

    @cached_property
    def _search(self) -> "ForestSearch | ParzenSearch":
        """What tunes G'; made once, after pruning."""
        return self._search_in(self._subspace)

    @cached_property
    def _search_outside(self) -> "ForestSearch | ParzenSearch":
        """The same in the whole space."""
        return self._search_in(self.space)

    def _search_in(self, part: Space) -> "ForestSearch | ParzenSearch":
        failure_cost = self.options.failure_cost
        assert failure_cost is not None  # noqa: S101 - resolved at construction
        if self.options.phase3 == "tpe":
            from prefect_tune.optimizers.methods.tpe.declaration import TpeOptions  # noqa: PLC0415
            from prefect_tune.optimizers.methods.tpe.parzen_search import ParzenSearch  # noqa: PLC0415

            options = TpeOptions(n_startup=1, failure_cost=failure_cost)
            return ParzenSearch(part, self.objective, options)
        forest = SmacOptions(n_startup=1, failure_cost=failure_cost)
        if self.options.is_paper:
            forest = SmacOptions(
                n_startup=1,
                min_samples_split=10,
                random_share=0.5,
                failure_cost=failure_cost,
                is_log=False,
            )
        return ForestSearch(self.space, self.objective, forest, part)

    @cached_property
    def _path_cost(self) -> PathCost:
        return PathCost(self.space, self._table.paths, self._shared)

    @cached_property
    def _scores(self) -> PathScores:
        return PathScores(self.options, self.objective, self._table, self._path_cost)

    @property
    def _asked(self) -> set[Configuration]:
        return {trial.query.configuration for trial in self.history}

    @cached_property
    def _table(self) -> PathTable:
        return PathTable(self.space, self.seed, self._shared)

    @property
    def _shared(self) -> dict[str, Choice]:
        """Of steps that all paths share, what the first run of a path has."""
        found: Mapping[str, Any] = self._decided.get("shared") or {}
        return {step: Choice.from_json(document) for step, document in found.items()}
