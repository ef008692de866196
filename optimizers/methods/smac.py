"""SMAC: a random forest over the whole conditional space, and expected improvement.

Hutter, Hoos and Leyton-Brown 2011, algorithm 1, with the trees, logarithms and random proposals of
SMAC3's facade for hyperparameters (2.4):

    Initialize                                  Smac._propose, and n_startup random asks
    FitModel                                    RandomForest, on ForestSearch._observed
    SelectConfigurations (section 4.3)          ForestSearch.propose
      multi-start local search                  ForestSearch._climb, from the best so far and drawn
      E[I_exp] of logarithmic losses            log_normal_improvement
      random configurations interleaved         ForestSearch.propose, with random_share
    Intensify                                   none: each configuration is evaluated once

Departures from SMAC3: the forest is fitted at each ask. The predicted variance includes the
variance within leaves. Improvement is measured from the best observed loss, not from the best
predicted loss. The first query has default values. Pending queries are assumed to have the mean
loss.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Method, Reason
from prefect_tune.optimizers.methods.declarations import SMAC
from prefect_tune.optimizers.models.forest import RandomForest
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.search.improvement import (
    log_expected_improvement,
    log_feasibility,
    log_normal_improvement,
)
from prefect_tune.optimizers.space.configuration import Query, default_configuration
from prefect_tune.optimizers.space.sampling import new_configuration, sample_configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.vectors import (
    N_NEIGHBORS,
    Array,
    Candidates,
    CandidateSpace,
    neighbors,
)
from prefect_tune.optimizers.trials.history import (
    History,
    imputed_losses,
    relative_losses,
    worst_excess,
)
from prefect_tune.optimizers.trials.objective import FailureCost, Objective

_N_RANDOM = 1_000
"""Number of random candidates per ask."""
_N_STARTS = 10
"""Number of best observed configurations, and of best candidates, that start a local search."""
_N_CLIMBS = 10
"""Largest number of steps of a local search."""
Score = Callable[[Candidates], Array]
Predict = Callable[[Array], tuple[Array, Array]]
"""Function from features, shape (n, d), to means and standard deviations, shape (n,) each."""
_MAX_DEFAULTS = 200
"""Number of random paths whose default values are added to the candidates."""
INTERLEAVED = 0.2
"""Fraction of the proposals that are not the forest's."""
_START = Reason("random start", "too few results for a forest")
_INTERLEAVED = Reason("random interleaving", "random, between proposals of the forest")
_IMPROVING = Reason("expected improvement", "largest expected improvement under a random forest")
_NOTHING_ELSE = Reason("random", "all candidates of the forest's search were already proposed")


_N_TREES = 10


@dataclass(frozen=True, slots=True)
class ForestSettings:
    """Settings of a search. Defaults are those of SMAC3's facade for hyperparameters.

    Attributes:
        n_startup: Number of random configurations before the first proposal of the forest.
        forest: Arguments of scikit-learn's forest that differ from the defaults.
        random_share: Fraction of the proposals that are drawn from the prior.
        failure_cost: Loss of a failed trial.
        is_log: Whether the forest is fitted to the logarithm of the loss, if the metric has a lower
            bound. The expected improvement is still computed for the loss itself (Hutter et al.
            2009).
    """

    n_startup: int
    forest: Mapping[str, Any] = field(default_factory=dict)
    random_share: float = INTERLEAVED
    failure_cost: FailureCost = "worst"
    is_log: bool = True


class ForestSearch:
    """The search for configurations in the space `proposed`, with a forest over the whole space."""

    def __init__(
        self,
        space: Space,
        objective: Objective,
        settings: ForestSettings,
        proposed: Space | None = None,
    ) -> None:
        self.objective, self.settings = objective, settings
        self.candidates = CandidateSpace(space, proposed)
        self.proposed = self.candidates.proposed

    def propose(self, history: History, rng: Generator) -> tuple[Query, Reason]:
        """Return the next query with its reason, or raise SpaceExhausted."""
        asked = history.asked
        n_told = len(history.complete) + len(history.failed) + len(history.older)
        is_random = rng.random() < self.settings.random_share
        if n_told < self.settings.n_startup or not history.complete:
            return Query(new_configuration(self.proposed, asked, rng)), _START
        if is_random:
            return Query(new_configuration(self.proposed, asked, rng)), _INTERLEAVED
        observed, targets, best = self._observed(history)
        older, seed = history.older, int(rng.integers(2**31))
        weights = np.append(older.weights, np.ones(len(observed) - len(older)))
        predict = self._fitted(self.candidates.features(observed), targets, seed, weights)
        is_of_logs = self.settings.is_log and np.isfinite(self.objective.lower)
        improvement = log_normal_improvement if is_of_logs else log_expected_improvement
        feasible = self._feasible(history, seed)

        def score(candidates: Candidates) -> Array:
            features = self.candidates.features(candidates)
            log_ei = improvement(*predict(features), best)
            if feasible is not None:
                log_ei += log_feasibility(*feasible.predict(features))
            return log_ei

        best_first = observed[np.argsort(targets, kind="stable")]
        inside = best_first[self.candidates.may_be_proposed(best_first)]
        drawn = self.candidates.sample(_N_RANDOM, rng)
        paths = self.candidates.sample(_MAX_DEFAULTS, rng).algorithms
        defaults = np.tile(self.candidates.default_units, (len(paths), 1))
        drawn = drawn.joined(Candidates(paths, defaults))  # default values are often good
        drawn_scores = score(drawn)
        starts = inside[:_N_STARTS].joined(
            drawn[np.argsort(-drawn_scores, kind="stable")[:_N_STARTS]]
        )
        climbed, climbed_scores = self._climb(starts, score(starts), score, rng)
        everything = climbed.joined(drawn)
        scores = np.concatenate([climbed_scores, drawn_scores])
        ranked = everything[np.argsort(-scores, kind="stable")]
        for configuration in self.candidates.new_configurations(ranked, asked):
            return Query(configuration), _IMPROVING
        return Query(new_configuration(self.proposed, asked, rng)), _NOTHING_ELSE

    def _fitted(self, features: Array, targets: Array, seed: int, weights: Array | None) -> Predict:
        """Return the predictions of a forest fitted to features, shape (n, d), and n targets."""
        options = self.settings.forest
        forest = RandomForest(
            features, targets, n_trees=_N_TREES, seed=seed, weights=weights, **options
        )
        return forest.predict

    def _observed(self, history: History) -> tuple[Candidates, Array, float]:
        """Return the configurations and targets for the forest, and the best target.

        The target of a pending trial is the mean of the targets (constant liar).
        """
        told, losses = imputed_losses(history, self.objective, self.settings.failure_cost)
        older = history.older
        losses = np.append(older.losses, losses)
        y = relative_losses(losses, self.objective, is_log=self.settings.is_log)
        best = float(y[losses == history.loss_to_improve].min())
        pending = history.pending
        now = (t.query.configuration for t in (*told, *pending))
        observed = self.candidates.encode([*older.configurations, *now])
        return observed, np.append(y, np.full(len(pending), y.mean())), best

    def _feasible(self, history: History, seed: int) -> RandomForest | None:
        """Return a forest of the log excess over the constraints; None without constraints."""
        if not history.constraints:
            return None
        trials = [*history.complete, *history.failed]
        observed = self.candidates.encode(t.query.configuration for t in trials)
        features, excess = self.candidates.features(observed), worst_excess(history, trials)
        return RandomForest(features, excess, n_trees=_N_TREES, seed=seed, **self.settings.forest)

    def _climb(
        self, points: Candidates, scores: Array, score: Score, rng: Generator
    ) -> tuple[Candidates, Array]:
        """Climb from all points to better neighbors in parallel; return all candidates and scores.

        The search ends after a fixed number of steps, or when no point has a better neighbor.
        """
        visited, visited_scores = points, scores
        for _ in range(_N_CLIMBS):
            near, origin = neighbors(self.candidates, points, N_NEIGHBORS, rng)
            if not len(near):
                break
            near_scores = score(near)
            visited = visited.joined(near)
            visited_scores = np.concatenate([visited_scores, near_scores])
            order = np.lexsort((-near_scores, origin))
            moved, first = np.unique(origin[order], return_index=True)
            chosen = order[first]
            better = near_scores[chosen] > scores[moved]
            if not better.any():
                break
            points, scores = near[chosen[better]], near_scores[chosen[better]]
        return visited, visited_scores


class Smac(Optimizer):
    """Sequential model-based algorithm configuration with a random forest."""

    method: ClassVar[Method] = SMAC

    def _propose(self, budget: Budget, rng: Generator) -> Query:  # noqa: ARG002
        if not len(self.history):
            path = sample_configuration(self.space, rng).path
            self._because = Reason("default values", "default values of a random path")
            return Query(default_configuration(self.space, path))
        query, self._because = self._search.propose(self.history, rng)
        return query

    @cached_property
    def _search(self) -> ForestSearch:
        settings = ForestSettings(n_startup=self.options.n_startup)
        return ForestSearch(self.space, self.objective, settings)
