"""Fabolas: Bayesian optimization for large data, with evaluations on subsets (Klein et al. 2017).

Equation 6 (kernel), section 3.1 (bases)   models.fidelity_kernel, subsets
Algorithm 1, line 1 (initial design)       Sizes.first_shares, Fabolas._designed
             line 3 (fit)                  belief.Learner.learn
             line 4 (equation 7)           search.Search.run
             c_overhead of equation 7      Fabolas._overhead
             line 6 (incumbent)            Fabolas._standing, Fabolas.incumbent
Equations 2, 3 and 5 (EI, ES, MTBO)        ExpectedImprovement, EntropySearch, TwoTasks

`variant=paper` follows the paper. The default variant differs as follows:

- The information gain has a closed form, and parameters are fitted, with other priors (`belief`).
- Sizes are powers of 1/2, small subsets are evaluated on one fold, and outliers are capped.
- All configurations share a trend over sizes, and the noise decreases with size.
- The initial design is halved on each larger subset. Later, a configuration is evaluated only on
  larger sizes than before.
- The incumbent has the lowest sum of predicted mean and standard deviation.
- Full evaluations verify predictions, and a gate may stop the use of subsets. The best predictions
  are confirmed by full evaluations at the end of the budget, after which the incumbent is the best
  full evaluation.

Both variants depart from the paper: random candidates replace DIRECT and CMA-ES, which need a box,
and the gain in equation 7 is estimated in closed form (`search.entropy`), which has a smaller error
than expectation propagation. Subsets are nested instead of drawn for each evaluation, so an equal
query has an equal result and is not proposed again. `rules` defines the constants.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice, pairwise, takewhile
from math import ceil, inf
from statistics import median
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Method, Reason
from prefect_tune.optimizers.methods.fabolas.belief import (
    Belief,
    Learner,
    Observations,
    log_floor,
    pipeline_inputs,
)
from prefect_tune.optimizers.methods.fabolas.gate import (
    Prediction,
    decisions_of,
    is_open,
    skills_of,
)
from prefect_tune.optimizers.methods.fabolas.rules import EI, ES, FABOLAS, MTBO, RULES
from prefect_tune.optimizers.methods.fabolas.search import Search
from prefect_tune.optimizers.methods.fabolas.subsets import (
    FULL,
    LOG_LOSS,
    PAPER_LOSS,
    RAW_LOSS,
    TASKS,
    Acquisition,
    Sizes,
    Strategy,
)
from prefect_tune.optimizers.methods.halving import all_begun, promotable, ranked
from prefect_tune.optimizers.models.inputs import PipelineInputs
from prefect_tune.optimizers.optimizer import NotYet, Optimizer
from prefect_tune.optimizers.space.configuration import (
    Configuration,
    Query,
    default_configuration,
    is_allowed,
)
from prefect_tune.optimizers.space.sampling import SpaceExhausted, new_configuration
from prefect_tune.optimizers.space.vectors import Array, Candidates
from prefect_tune.optimizers.trials.history import relative_losses
from prefect_tune.optimizers.trials.trial import Trial

_CONFIRM = Reason("confirm", "one of the best, evaluated on all rows before the budget ends")
_PER_SECOND = Reason(
    "information per second", "most information per second about the best configuration on all rows"
)
_SOUGHT: Mapping[Acquisition, Reason] = {
    "gain": Reason("information", "most information about the best configuration"),
    "gain_per_cost": _PER_SECOND,
    "divergence_per_cost": _PER_SECOND,
    "improvement": Reason(
        "expected improvement", "largest expected improvement under a Gaussian process"
    ),
}


@dataclass(frozen=True)
class Standing:
    """The n feasible configurations with a loss, ranked by their predicted loss on all rows.

    Configurations that failed on all rows are excluded.

    Attributes:
        trials: Trial of each configuration on the most rows.
        candidates: The n configurations.
        at_one: Inputs of the configurations at s = 1, shape (n, width + 1).
        mean: Predicted losses at s = 1, shape (n,).
        deviation: Standard deviations of the predicted losses, without noise, shape (n,).
    """

    trials: tuple[Trial, ...]
    candidates: Candidates
    at_one: Array
    mean: Array
    deviation: Array


class Fabolas(Optimizer):
    """Bayesian optimization over configurations and sizes, by information per second."""

    method: ClassVar[Method] = FABOLAS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sizes = self._find_sizes()
        self.strategy = self._find_strategy()
        self._recalled: tuple[list[Any], Trial | None] = [], None

    def _find_sizes(self) -> Sizes:
        return Sizes.of(self.objective, is_continuous=self.is_of_paper)

    def _find_strategy(self) -> Strategy:
        if self.is_of_paper:
            return Strategy(
                basis=PAPER_LOSS, acquisition="divergence_per_cost", is_log=False, is_drawn=True
            )
        is_log = self.objective.is_percentage
        return Strategy(
            basis=LOG_LOSS if is_log else RAW_LOSS,
            acquisition="improvement" if self.sizes.is_single else "gain_per_cost",
            is_log=is_log,
            is_published=False,
            one_fold_to=0.0 if self.sizes.is_single else RULES.first_shares[1],
            n_confirmed=0 if self.sizes.is_single else RULES.confirmed,
        )

    @property
    def resumes_configurations(self) -> bool:
        """Whether configurations with the best predictions finally run on all rows."""
        return self.strategy.n_confirmed > 0

    @property
    def incumbent(self) -> Trial | None:
        """The configuration with the best prediction on all rows, or the best full evaluation.

        The best full evaluation is the incumbent after a confirmation, or if subsets are not used.
        With `variant=paper`, there are no confirmations.
        """
        seen = [self.memo, *self.history]
        if seen != self._recalled[0]:
            self._recalled = seen, self._find_incumbent()
        return self._recalled[1]

    @property
    def decisions(self) -> dict[str, Any]:
        """Sizes, gate, probability of each model, and confirmations, as JSON values."""
        floor = log_floor(self.objective) if self.strategy.is_log else None
        found = decisions_of(self.history, self.sizes, self.memo or {}, floor)
        return {**super().decisions, **found}

    def _find_incumbent(self) -> Trial | None:
        memo = self.memo or {}
        best = self.history.incumbent
        is_confirmed = any(self.history[n].loss is not None for n in self._confirmations)
        if best is not None and (is_confirmed or self.sizes.is_single or memo.get("closed")):
            return best
        seen = self._seen()
        if "losses" in memo:
            is_closed = memo["closed"]
            belief = self._learners[is_closed].recall(self._seen(is_full=is_closed), memo)
            if (standing := self._standing(belief, seen)).trials:
                return standing.trials[0]
        return super().incumbent

    def _propose(self, budget: Budget, rng: Generator) -> Query:
        may_begin = budget.trials_left != 0 or not self.resumes_configurations
        seen = self._seen()
        knows_enough = np.isfinite(seen.losses).sum() >= RULES.confirmed
        left = None if self.is_of_paper else budget.seconds_left
        if may_begin and (not knows_enough or left is None or left > budget.seconds_spent):
            design = self._designed(rng, is_endless=not knows_enough)
            if design is not None:
                return design
        if knows_enough:
            return self._learned(budget, seen, rng)
        self._because = _CONFIRM
        taken = self._taken
        told = [t for t in self.history if t.is_told]
        for trial in (*ranked(told, self.history), *(t for t in told if t.loss is None)):
            is_wanted = may_begin or len(taken) < self.strategy.n_confirmed
            if is_wanted and trial.query.configuration not in taken:
                return Query(trial.query.configuration)
        if self.history.pending:
            raise NotYet
        raise all_begun()

    def _designed(self, rng: Generator, *, is_endless: bool) -> Query | None:
        """Return the next query of the initial design; None if the design is complete or waiting.

        On the smallest subset, each model starts with default values, followed by random
        configurations. The better half of the configurations on a subset is promoted to the next
        subset. In the paper, configurations start on the small subsets in turn.
        """
        number, shares = len(self.history.asked), self.sizes.first_shares
        if is_endless or number < self._n_first:
            share = shares[number % len(shares) if self.is_of_paper else 0]
            configuration = self._next_repeated() or self._plain(number)
            self._because = self._because or Reason("first design", "a new configuration")
            try:
                new = configuration or new_configuration(self.space, self.history.asked, rng)
                return self._query(new, share)
            except SpaceExhausted:
                pass
        if self.strategy.is_published:
            return None
        asked = dict.fromkeys(t.query.configuration for t in self.history)
        first = set(islice(asked, self._n_first))
        trials = [t for t in self.history if t.query.configuration in first]
        for share, larger in pairwise(shares):
            runs = [t for t in trials if t.query.subset == share]
            above = [t for t in trials if t.query.subset == larger]
            best = ranked(runs, self.history)
            if best and all(t.is_told for t in runs) and len(above) < ceil(len(runs) / 2):
                gone = {t.query.configuration for t in trials if t.query.subset >= larger}
                # Promote only losses closer to the best than to the worst: half of the
                # configurations may be no better than the baseline.
                told = np.array([t.loss for t in best], dtype=np.float64)
                losses = relative_losses(told, self.objective, is_log=True)
                most = (losses.min() + losses.max()) / 2
                promising = [t for t, loss in zip(best, losses, strict=True) if loss <= most]
                for trial in promotable(promising, gone | self._taken):
                    self._because = Reason("first design", "one of the best, now on more rows")
                    return self._query(trial.query.configuration, larger)
        return None

    def _plain(self, number: int) -> Configuration | None:
        """Return a model with defaults and the simplest other steps; None if not runnable.

        `number` is the position of the model in random order.
        """
        if number >= self._n_models or self._n_models == 1 or self.is_of_paper:
            return None
        *before, last = self.space.searched
        model = np.random.default_rng(self.seed).permutation(self._n_models)[number]
        path = self.space.canonical_path(
            (*(s.simplest.id for s in before), last.algorithms[model].id)
        )
        if not self.space.is_feasible(path):
            return None
        plain = default_configuration(self.space, path)
        is_new = plain not in self.history.asked and is_allowed(self.space, plain)
        return plain if is_new else None

    def _learned(self, budget: Budget, seen: Observations, rng: Generator) -> Query:
        """Return the next query chosen with the fitted models: confirm, verify or search."""
        memo = self.memo or {}
        full, models = dict(memo.get("full", {})), memo.get("models", {})
        n_first = memo.get("n_first", len(self.history))
        is_closed = bool(memo.get("closed"))
        learned = self._seen(is_full=is_closed)
        belief, kept = self._learners[is_closed].learn(learned, memo, rng)
        if not is_closed and self._is_closed(belief, memo):
            is_closed = True
            belief, kept = self._learners[True].learn(self._seen(is_full=True), {}, rng)
        standing = self._standing(belief, seen)
        reason = "confirm"
        if (configuration := self._to_confirm(standing, belief, budget)) is not None:
            query, self._because = Query(configuration), _CONFIRM
        elif budget.trials_left == 0 and self.resumes_configurations:
            if self.history.pending:
                raise NotYet
            raise all_begun()
        elif (configuration := self._to_verify(standing, belief, budget, n_first)) is not None:
            reason, query = "verify", Query(configuration)
            why = "predicted to be best, but the loss on all rows is uncertain"
            self._because = Reason(reason, why)
        else:
            reason = "search"
            query, found = self._searched(standing, belief, budget, rng, is_closed=is_closed)
            models = found or models
        if query.is_full and self.strategy.n_confirmed:
            row = self._inputs.at(self._inputs.encode([query.configuration]), 1.0)
            (mean,), (deviation,) = belief.predict(row)
            spread = float(np.sqrt(deviation**2 + belief.noise(row)[0]))
            full[str(len(self.history))] = Prediction(reason, float(mean), spread).to_json()
        state = {"full": full, "models": models, "closed": is_closed, "n_first": n_first}
        self.memo = {**kept, **state}
        return query

    def _is_closed(self, belief: Belief, memo: Mapping[str, Any]) -> bool:
        if self.strategy.is_published or self.sizes.is_single:
            return False
        full = self.history.complete
        losses = belief.scale.learned(self.history.losses).tolist()
        outcomes = {t.number: y for t, y in zip(full, losses, strict=True)}
        return not is_open(skills_of(Prediction.all_of(memo), outcomes, belief.spread))

    def _to_confirm(
        self, standing: Standing, belief: Belief, budget: Budget
    ) -> Configuration | None:
        """Return the configuration to confirm on all rows; None while the budget allows a search.

        Confirmations start when the remaining budget is just enough for them.
        """
        n, left = self.strategy.n_confirmed, self._seconds_left(budget)
        seconds = belief.seconds(standing.at_one[:n])
        best = [t.query.configuration for t in standing.trials[:n]]
        wanted = [
            (c, RULES.reserved * each + self._overhead(budget))
            for c, each in zip(best, seconds, strict=True)
            if c not in self._taken and each <= left
        ][: max(n - len(self._confirmations), 0)]
        if not wanted:
            return None
        configuration, first = wanted[0]
        whole = left + budget.seconds_spent / budget.n_workers
        needed = np.cumsum([each for _, each in wanted]) / budget.n_workers
        is_late = max([first, *needed[needed <= whole / 2]]) >= left
        return configuration if is_late or budget.trials_left == 0 else None

    def _to_verify(
        self, standing: Standing, belief: Belief, budget: Budget, n_first: int
    ) -> Configuration | None:
        """Return the configuration to verify on all rows; None if no verification is due.

        A verification is due once the trials on subsets since the last full evaluation have taken a
        given fraction of its time, or while predictions are uncertain.
        """
        if self.strategy.is_published or not standing.trials:
            return None
        taken, noise = self._taken, belief.noise(standing.at_one)
        is_doubtful = standing.deviation**2 > RULES.told * noise
        is_doubtful &= standing.mean <= standing.mean[0]
        is_doubtful &= [t.query.configuration not in taken for t in standing.trials]
        if not is_doubtful.any():
            return None
        place = int(np.argmax(is_doubtful))
        seconds, overhead = belief.seconds(standing.at_one[[place]])[0], self._overhead(budget)
        since = takewhile(lambda t: not t.query.is_full, reversed(list(self.history)[n_first:]))
        spent = sum(t.cost_seconds + overhead for t in since)
        n_full = sum(t.query.is_full for t in self.history)
        is_paid = spent >= (RULES.paid if n_full else RULES.paid_first) * (seconds + overhead)
        variance = standing.deviation[place] ** 2 + noise[place]
        is_vague = n_full < RULES.judged and variance > (RULES.vague * belief.spread) ** 2
        is_due = seconds <= self._seconds_left(budget) and (is_paid or is_vague)
        return standing.trials[place].query.configuration if is_due else None

    def _searched(
        self, standing: Standing, belief: Belief, budget: Budget, rng: Generator, *, is_closed: bool
    ) -> tuple[Query, dict[str, float]]:
        """Return the query with the largest acquisition, and the probability of each model."""
        # After confirmations near the end, the remaining time is for full evaluations.
        left, spent = self._seconds_left(budget), budget.seconds_spent / budget.n_workers
        is_only_full = is_closed or (len(self._confirmations) > 0 and left < spent)
        shares = (1.0,) if is_only_full else self.sizes.shares
        acquisition = "improvement" if is_closed else self.strategy.acquisition
        if pending := self.history.pending:
            encoded = self._inputs.encode(t.query.configuration for t in pending)
            at = self.sizes.s([t.query.subset for t in pending])
            belief = belief.imagining(self._inputs.at(encoded, at))
        search = Search(
            self._inputs,
            belief,
            acquisition,
            sizes=self.sizes.s(shares),
            is_continuous=self.sizes.is_continuous,
            leaders=standing.candidates,
            best=min(standing.mean, default=0.0),
            overhead=self._overhead(budget),
            rng=rng,
        )
        found = search.run()
        at_sizes = [self._inputs.at(found.candidates, s) for s in found.sizes.T]
        fits = np.column_stack([belief.seconds(rows) for rows in at_sizes]) <= left
        largest: dict[Configuration, float] = {}
        for t in self.history:
            share = t.query.subset if t.is_told else 1.0
            largest[t.query.configuration] = max(largest.get(t.query.configuration, 0.0), share)
        asked = {t.query for t in self.history}
        for row, level in found.best_first():
            configuration = self._inputs.candidates.decode(found.candidates, row)
            if configuration is None:
                continue
            query = self._query(configuration, self.sizes.share(found.sizes[row, level]))
            is_larger = query.subset > largest.get(configuration, 0.0)
            if query not in asked if self.is_of_paper else is_larger and fits[row, level]:
                self._because = _SOUGHT[acquisition]
                return query, search.models()
        if pending:
            raise NotYet
        raise SpaceExhausted(
            f"space {self.space.name!r} has no new configuration that can be evaluated within the "
            "budget"
        )

    def _standing(self, belief: Belief, seen: Observations) -> Standing:
        """Rank configurations by predicted loss on all rows.

        The paper ranks by mean (section 3.2), the default by mean plus standard deviation.
        """
        failed = {t.query.configuration for t in self.history.failed if t.query.is_full}
        rows: dict[Configuration, int] = {}
        for i in np.argsort([-t.query.subset for t in seen.trials], kind="stable"):
            trial = seen.trials[i]
            configuration = trial.query.configuration
            if trial.loss is not None and self.history.violation(trial) <= 0:
                rows.setdefault(configuration, int(i))
        kept = np.array([i for c, i in rows.items() if c not in failed], dtype=np.intp)
        at_one = self._inputs.at(seen.candidates[kept], 1.0)
        mean, deviation = belief.predict(at_one)
        order = np.argsort(mean + (0 if self.strategy.is_published else deviation), kind="stable")
        kept = kept[order]
        return Standing(
            tuple(seen.trials[i] for i in kept),
            seen.candidates[kept],
            at_one[order],
            mean[order],
            deviation[order],
        )

    def _seen(self, *, is_full: bool = False) -> Observations:
        n_folds = self.objective.n_folds or 1
        return Observations.of(self.history, self.sizes, self._inputs, n_folds, is_full=is_full)

    def _query(self, configuration: Configuration, share: float) -> Query:
        folds = 1 if self.objective.n_folds and share <= self.strategy.one_fold_to else None
        return Query(configuration, share, folds=folds)

    def _overhead(self, budget: Budget) -> float:
        """Return the overhead of an evaluation: the seconds of a recent ask and of the dispatch."""
        return RULES.dispatch_seconds + median(budget.last_ask_seconds or (0.0,))

    def _seconds_left(self, budget: Budget) -> float:
        return inf if budget.seconds_left is None else budget.seconds_left / budget.n_workers

    @property
    def _confirmations(self) -> list[int]:
        """Trial numbers of the confirmations since the last trial on a subset.

        If the budget is extended, confirmations start again near the new end of the budget.
        """
        last = max((t.number for t in self.history if t.query.subset < 1), default=-1)
        predictions = Prediction.all_of(self.memo or {})
        return [
            number
            for number, prediction in predictions.items()
            if prediction.reason == "confirm" and number > last and number in self.history
        ]

    @property
    def _taken(self) -> set[Configuration]:
        """Configurations that are pending or were evaluated on all rows."""
        return {t.query.configuration for t in self.history if t.query.is_full or not t.is_told}

    @property
    def _n_first(self) -> int:
        if self.sizes.is_single and self._uses_ample_prior:
            return 0
        per_model = 0 if self.is_of_paper else 2
        return max(self.options.n_first, per_model * self._n_models)

    @property
    def _n_models(self) -> int:
        return 1 if self.space.steps[-1].fixed else len(self.space.steps[-1].algorithms)

    @cached_property
    def _inputs(self) -> PipelineInputs:
        return pipeline_inputs(self.space, is_of_paper=self.is_of_paper)

    @cached_property
    def _learners(self) -> tuple[Learner, Learner]:
        """The learners for an open and a closed gate.

        If the gate is closed, the models are fitted to few results, so the uncertain parameters are
        drawn.
        """
        learner = partial(Learner, self._inputs, self.sizes, self.objective)
        return learner(self.strategy), learner(replace(self.strategy, is_drawn=True))


class ExpectedImprovement(Fabolas):
    """Full evaluations, chosen by expected improvement (equation 2; Snoek et al. 2012)."""

    method: ClassVar[Method] = EI
    acquisition: ClassVar[Acquisition] = "improvement"

    def _find_sizes(self) -> Sizes:
        return Sizes.single(self.objective)

    def _find_strategy(self) -> Strategy:
        is_log = self.objective.is_percentage
        return Strategy(basis=FULL, acquisition=self.acquisition, is_log=is_log)


class EntropySearch(ExpectedImprovement):
    """Full evaluations, chosen by entropy search (equation 3; Hennig and Schuler 2012)."""

    method: ClassVar[Method] = ES
    acquisition: ClassVar[Acquisition] = "gain"


class TwoTasks(Fabolas):
    """Evaluations on one subset or all rows, chosen by information per second.

    Source: equation 5; Swersky et al. 2013.
    """

    method: ClassVar[Method] = MTBO

    def _find_sizes(self) -> Sizes:
        return Sizes.pair(self.objective, self.options.share)

    def _find_strategy(self) -> Strategy:
        return Strategy(
            basis=TASKS,
            acquisition="gain_per_cost",
            is_log=self.objective.is_percentage,
            n_confirmed=0 if self.sizes.is_single else RULES.confirmed,
        )
