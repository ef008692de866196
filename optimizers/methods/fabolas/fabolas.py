"""Fabolas: Bayesian optimisation on subsets, for the full data (Klein et al. 2017).

Equation 6 (kernel), section 3.1 (bases)   surrogates.fidelity_kernel, recipe
Algorithm 1, line 1 (initial design)       first_design.ScatteredDesign; by default FirstDesign
             line 3 (fit)                  belief.SubsetLearner.learn, inference.Regression
             line 4 (equation 7)           turn.FabolasTurn.proposal, search.Search.run
             c_overhead of equation 7      turn.FabolasTurn._overhead
             line 6 (incumbent)            decisions.AnswerStanding, Fabolas.incumbent
Equations 2, 3 and 5 (EI, ES, MTBO)        ExpectedImprovement, EntropySearch, TwoTasks

`variant=paper` has the paper's acquisition, bases, noise, drawn parameters, incumbent and initial
design. The default has the information gain in closed form, a trend shared by all configurations,
noise that falls with the size, and fitted parameters. Its incumbent pays kappa deviations, its
design is halved, full evaluations verify predictions, and a gate may drop subsets. Both variants
depart from the paper: priors differ (`belief`), random candidates replace DIRECT and CMA-ES, and
confirmations end the budget. `rules` has the constants.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Method, Reason
from prefect_tune.optimizers.methods.fabolas.belief import (
    SubsetBelief,
    SubsetLearner,
    pipeline_inputs,
)
from prefect_tune.optimizers.methods.fabolas.decisions import (
    AnswerStanding,
    Gate,
    Prediction,
    decisions_of,
)
from prefect_tune.optimizers.methods.fabolas.declaration import EI, ES, FABOLAS, MTBO
from prefect_tune.optimizers.methods.fabolas.first_design import (
    BeginAlgorithm,
    FirstDesign,
    ScatteredDesign,
)
from prefect_tune.optimizers.methods.fabolas.observations import SubsetObservations
from prefect_tune.optimizers.methods.fabolas.recipe import (
    FULL,
    LOG_LOSS,
    PAPER_LOSS,
    RAW_LOSS,
    TASKS,
    SearchRecipe,
    Sizes,
    Subsets,
)
from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.methods.fabolas.turn import FabolasTurn, Proposal
from prefect_tune.optimizers.methods.rungs import Promote, all_begun
from prefect_tune.optimizers.optimizer import NotYet, Optimizer
from prefect_tune.optimizers.space.configuration import (
    Configuration,
    Query,
    default_configuration,
    is_allowed,
)
from prefect_tune.optimizers.space.sampling import (
    SpaceExhausted,
    new_configuration,
    sample_configuration,
)
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs
from prefect_tune.optimizers.trials.trial import Trial

_BEGUN = Reason("first design", "a new configuration")
_PROMOTED = Reason("first design", "among the best so far, on more rows")
_UNLEARNED = Reason("random", "too few results for a Gaussian process")
_WHOLE = Reason("confirm", "the best so far, on all rows")


class Fabolas(Optimizer):
    """Queries by information per second; raises `ValueError` if an option does not fit."""

    method: ClassVar[Method] = FABOLAS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sizes = self._find_sizes()
        self.recipe = self._find_recipe()
        self._design = self._first_design()
        self._recalled: tuple[tuple[Trial, ...], Any, Trial | None] | None = None

    def _find_sizes(self) -> Sizes:
        return Sizes.of(self.objective)

    def _find_recipe(self) -> SearchRecipe:
        n_confirmed = 0 if self.sizes.is_single else self.options.n_confirmed
        n_folds, asked = self.objective.n_folds or 1, self.options.subset_folds
        if self.objective.n_folds is not None and asked > n_folds:
            raise ValueError(f"subset_folds must be 0 to {n_folds}, all folds; got {asked}")
        subsets = Subsets(self.options.subset_draws, asked if 0 < asked < n_folds else None)
        if self.options.variant == "paper":
            recipe = SearchRecipe.plain(PAPER_LOSS, "divergence_per_cost", n_confirmed)
            of_paper: dict[str, Any] = {"is_log": False, "has_halving": False, "is_drawn": True}
            return replace(recipe, subsets=subsets, **of_paper)
        return SearchRecipe(
            log_basis=LOG_LOSS,
            raw_basis=RAW_LOSS,
            acquisition="improvement" if self.sizes.is_single else "gain_per_cost",
            verify_every=self.options.verify_every or None,
            has_gate=self.options.gate,
            n_confirmed=n_confirmed,
            has_anchor=False,
            subsets=subsets,
        )

    def _first_design(self) -> FirstDesign | ScatteredDesign:
        given = {"n_first": self.options.n_first, "n_algorithms": self._n_models, "seed": self.seed}
        if not self.recipe.has_halving:
            return ScatteredDesign.of(self.sizes, **given)
        return FirstDesign.of(self.sizes, **given, has_anchor=self.recipe.has_anchor)

    @property
    def can_go_on(self) -> bool:
        """Whether the predicted best may be evaluated on all rows at the end."""
        return self.recipe.n_confirmed > 0

    @property
    def incumbent(self) -> Trial | None:
        """The predicted best on all rows; once some are confirmed, the best full evaluation."""
        seen = tuple(self.history)
        if (
            self._recalled is None
            or self._recalled[1] is not self.memo
            or len(self._recalled[0]) != len(seen)
            or any(a is not b for a, b in zip(self._recalled[0], seen, strict=True))
        ):
            self._recalled = seen, self.memo, self._find_incumbent()
        return self._recalled[2]

    @property
    def decisions(self) -> dict[str, Any]:
        """Sizes, probability of each model, the gate, and outcomes of confirmations."""
        is_log = self.recipe.learns_logs(self.objective)
        found = decisions_of(self.history, self.sizes, self.memo or {}, is_log=is_log)
        return {**super().decisions, **found}

    def _find_incumbent(self) -> Trial | None:
        memo: Mapping[str, Any] = self.memo or {}
        best = self.history.incumbent
        is_confirmed = any(
            self.history[number].loss is not None for number in self._confirmations(memo)
        )
        if best is not None and (is_confirmed or self.sizes.is_single or memo.get("closed")):
            return best
        seen = self._seen()
        if "losses" in memo:
            standing = self._standing(self._learner.recall(seen, memo), seen)
            if len(standing):
                return standing.trials[0]
        feasible = [t for t in seen.trials if t.loss is not None and self.history.violation(t) <= 0]
        return min(feasible, key=lambda t: (-t.query.subset, t.loss, t.number), default=None)

    def _propose(self, budget: Budget, rng: Generator) -> Query:
        may_begin = budget.trials_left != 0 or not self.can_go_on
        seen = self._seen()
        knows_enough = np.isfinite(seen.losses).sum() >= RULES.least_losses
        left = budget.seconds_left
        if knows_enough and self.sizes.is_single and self._uses_ample_prior:
            return self._learned(budget, seen, rng)
        if not knows_enough or left is None or left > budget.seconds_spent:
            step = self._design.next(self.history, may_begin=may_begin)
            if isinstance(step, BeginAlgorithm):
                self._because = _BEGUN
                try:
                    return self._query(self._begun(step, rng), step.level)
                except SpaceExhausted:
                    step = self._design.next(self.history, may_begin=False)
            if isinstance(step, Promote):
                self._because = _PROMOTED
                return self._query(step.configuration, step.level)
        if knows_enough:
            return self._learned(budget, seen, rng)
        return self._unlearned(rng, may_begin=may_begin)

    def _unlearned(self, rng: Generator, *, may_begin: bool) -> Query:
        nothing_new = all_begun()
        self._because = _UNLEARNED
        if may_begin:
            try:
                configuration = new_configuration(self.space, self.history.asked, rng)
                return self._query(configuration, self.sizes.shares[0])
            except SpaceExhausted as exhausted:
                nothing_new = exhausted
        in_full = {t.query.configuration for t in self.history if t.query.is_full}
        told = [t for t in self.history if t.is_told and t.query.configuration not in in_full]
        with_loss = sorted((t for t in told if t.loss is not None), key=lambda t: t.loss or 0.0)
        if may_begin or len(in_full) < self.recipe.n_confirmed:
            for trial in [*with_loss, *(told if may_begin else ())]:
                self._because = _WHOLE
                return Query(trial.query.configuration)
        if self.history.pending:
            raise NotYet
        raise nothing_new

    def _learned(self, budget: Budget, seen: SubsetObservations, rng: Generator) -> Query:
        memo: Mapping[str, Any] = self.memo or {}
        predictions = Prediction.all_of(memo)
        belief, kept = self._learner.learn(seen, memo, rng)
        alone = None
        if self.recipe.has_gate and (seen.s[np.isfinite(seen.losses)] == 1).sum() >= 2:
            alone, kept = self._learner.learn(seen, kept, rng, full_only=True)
        kept["n_first"] = memo.get("n_first", len(self.history))
        gate = self._gate(predictions, seen, belief)
        deciding = belief if alone is None or gate.is_open else alone
        turn = FabolasTurn(
            inputs=self._inputs,
            sizes=self.sizes,
            recipe=self.recipe,
            history=self.history,
            budget=budget,
            belief=deciding,
            standing=self._standing(deciding, seen),
            gives_up_subsets=deciding is alone,
            is_proven=gate.is_proven or not self.recipe.has_gate,
            n_first=kept["n_first"],
            n_confirmed=len(self._confirmations(memo)),
            rng=rng,
        )
        proposal = turn.proposal()
        full = dict(memo.get("full", {}))
        if proposal.query.is_full and self.recipe.n_confirmed:
            prediction = self._predicted(proposal, belief, alone)
            full[str(len(self.history))] = prediction.to_json()
        closed = deciding is alone
        self._because = proposal.because
        models = proposal.models or memo.get("models", {})
        self.memo = {**kept, "full": full, "models": models, "closed": closed}
        return proposal.query

    def _confirmations(self, memo: Mapping[str, Any]) -> list[int]:
        """Confirmations since the last subset; after an extended budget, they start anew."""
        subsets = [t.number for t in self.history if t.query.subset < 1]
        return [
            number
            for number, prediction in Prediction.all_of(memo).items()
            if prediction.reason == "confirm"
            and number > max(subsets, default=-1)
            and number in self.history
        ]

    def _gate(
        self, predictions: Mapping[int, Prediction], seen: SubsetObservations, belief: SubsetBelief
    ) -> Gate:
        full = [i for i, t in enumerate(seen.trials) if t.query.is_full and t.loss is not None]
        flat = belief.scale.flat(seen.losses[full])
        outcomes = {seen.trials[i].number: float(y) for i, y in zip(full, flat, strict=True)}
        return Gate.of(predictions, outcomes, belief.scale.deviation)

    def _predicted(
        self, proposal: Proposal, belief: SubsetBelief, alone: SubsetBelief | None
    ) -> Prediction:
        row = self._inputs.at(self._inputs.encode([proposal.query.configuration]), 1.0)
        return Prediction(
            proposal.reason,
            *belief.outcome(row),
            *(alone.outcome(row) if alone is not None and alone.knows(row).all() else ()),
        )

    def _standing(self, belief: SubsetBelief, seen: SubsetObservations) -> AnswerStanding:
        return AnswerStanding.of(belief, seen, self._inputs, self.history, self.recipe.kappa)

    def _seen(self) -> SubsetObservations:
        n_folds = self.objective.n_folds or 1
        return SubsetObservations.of(self.history, self.sizes, self._inputs, n_folds)

    def _query(self, configuration: Configuration, share: float) -> Query:
        return self.recipe.subsets.query(configuration, share, self.history)

    def _begun(self, step: BeginAlgorithm, rng: Generator) -> Configuration:
        """New configuration that meets the request of the first design as far as possible."""
        if (repeated := self._next_repeated()) is not None:
            return repeated
        *before, last = self.space.searched
        if step.has_defaults and not self.space.steps[-1].fixed:
            plainest = (*(s.plainest.id for s in before), last.algorithms[step.algorithm].id)
            path = self.space.settled(plainest)
            if self.space.is_feasible(path):
                plain = default_configuration(self.space, path)
                if plain not in self.history.asked and is_allowed(self.space, plain):
                    return plain
        return self._drawn(step.algorithm, rng)

    def _drawn(self, model: int, rng: Generator) -> Configuration:
        last = self.space.steps[-1]
        asked = self.history.asked
        for _ in range(RULES.path_draws if self._n_models > 1 else 0):
            before = sample_configuration(self.space, rng).path[:-1]
            path = self.space.settled((*before, last.algorithms[model].id))
            if self.space.is_feasible(path):
                try:
                    return new_configuration(self.space, asked, rng, path)
                except SpaceExhausted:
                    continue
        return new_configuration(self.space, asked, rng)

    @property
    def _n_models(self) -> int:
        return 1 if self.space.steps[-1].fixed else len(self.space.steps[-1].algorithms)

    @cached_property
    def _inputs(self) -> PipelineInputs:
        return pipeline_inputs(self.space)

    @cached_property
    def _learner(self) -> SubsetLearner:
        return SubsetLearner(
            self._inputs,
            self.recipe,
            self.objective,
            inference="ensemble" if self.recipe.is_drawn else self.options.inference,
            n_samples=self.options.n_samples,
            subset_folds=self.recipe.subsets.folds,
            small=-1.0 if self.sizes.is_single else float(self.sizes.s(RULES.small)),
        )


class ExpectedImprovement(Fabolas):
    """Full evaluations of the largest expected improvement (equation 2; Snoek et al. 2012)."""

    method: ClassVar[Method] = EI

    def _find_sizes(self) -> Sizes:
        return Sizes.single(self.objective)

    def _find_recipe(self) -> SearchRecipe:
        return SearchRecipe.plain(FULL, "improvement")


class EntropySearch(Fabolas):
    """Full evaluations by information, not per cost (equation 3; Hennig and Schuler 2012)."""

    method: ClassVar[Method] = ES

    def _find_sizes(self) -> Sizes:
        return Sizes.single(self.objective)

    def _find_recipe(self) -> SearchRecipe:
        return SearchRecipe.plain(FULL, "gain")


class TwoTasks(Fabolas):
    """Queries on all rows or one subset by information per second (eq. 5; Swersky et al. 2013)."""

    method: ClassVar[Method] = MTBO

    def _find_sizes(self) -> Sizes:
        return Sizes.pair(self.objective, self.options.share)

    def _find_recipe(self) -> SearchRecipe:
        n_confirmed = 0 if self.sizes.is_single else 3
        return SearchRecipe.plain(TASKS, "gain_per_cost", n_confirmed)
