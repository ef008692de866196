"""BAPI: the budget planned over configurations and epochs (Belakaria et al. 2022).

Algorithm 2, line 1 (initial points)     turn.BapiTurn.initial, turn.Design
             lines 2, 9 (GP_f, GP_c)     learner.CurveLearner.learn, costs.CostModel.fit
             lines 3, 4, 10 (B_r)        costs.RemainingBudget
             line 5 (algorithm 4, NMO)   planning.Planning.entries, planning.Horizon.plan
             line 6 (choice)             planning.chosen_entry
             line 7 (algorithm 5)        turn.BapiTurn.evaluation, planning.verdict
Equation 8, algorithm 3 (t_opt)          planning.enough_epochs
Section 3.4 (points of a curve)          curves.chosen_epochs
Equations 9 to 18 (slopes), 20 to 24     surrogates.monotone, surrogates.curve_kernel

`variant=paper` has the paper's settings. The default starts with successive halving and cools costs
as the budget is spent. It models log seconds, and log losses if likelier. It also stops trainings
that are far behind, and answers with the steadiest curve. Both variants depart from the paper: EP
replaces samples of the truncated normal, and the last point of q-EI is integrated. A planned
training takes at least p epochs, and the best one is completed. The budget pays for prefixes,
checkpoints and pending trainings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.acquisitions.expected_improvement import sobol_normals
from prefect_tune.optimizers.acquisitions.gaussian_search import drawn_evenly, moved
from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.bapi.curves import LearningCurve, curves_of, trains_in_epochs
from prefect_tune.optimizers.methods.bapi.decisions import advice_of, best_training, decisions_of
from prefect_tune.optimizers.methods.bapi.declaration import BAPI, Settings
from prefect_tune.optimizers.methods.bapi.learner import CurveLearner
from prefect_tune.optimizers.methods.bapi.planning import MOST_PENDING
from prefect_tune.optimizers.methods.bapi.turn import BapiTurn, Design, Order, size_of_start
from prefect_tune.optimizers.methods.rungs import all_begun
from prefect_tune.optimizers.optimizer import NotYet, Optimizer
from prefect_tune.optimizers.space.candidate_space import Candidates
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.sampling import SpaceExhausted, new_configuration
from prefect_tune.optimizers.trials.trial import Trial

_LEAST_EPOCHS = 5
_N_NEW = 512
_N_NEAR = 160
_WIDTH = 0.12
_DRAWS = 256
_INSTEAD = "smac or fabolas would serve"


class Bapi(Optimizer):
    """Queries planned over configurations and epochs.

    Raises `ValueError` if no model trains in epochs, or the epochs are too few.
    """

    method: ClassVar[Method] = BAPI

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.settings = Settings.of(self.options)
        self.t_max = self._checked_epochs()
        self._known: tuple[tuple[Trial, ...], Mapping[Configuration, LearningCurve]] = (), {}
        n_normals = self.settings.horizon + MOST_PENDING
        self._normals = sobol_normals(_DRAWS, n_normals, np.random.default_rng(self.seed))

    def _checked_epochs(self) -> int:
        epochs, models = self.objective.epochs, self.space.steps[-1].algorithms
        if not any(a.id in self.objective.iterative for a in models):
            raise ValueError(
                f"method {self.name} needs models that train in epochs, and space "
                f"{self.space.name!r} has none; {_INSTEAD}"
            )
        if epochs is None:
            raise ValueError(
                f"method {self.name} needs the epochs of a full training, for instance --epochs 50"
            )
        if epochs < _LEAST_EPOCHS:
            raise ValueError(
                f"method {self.name} learns from curves, which {epochs} epochs are not: a full "
                f"training takes {_LEAST_EPOCHS} or more; {_INSTEAD}"
            )
        return epochs

    @property
    def incumbent(self) -> Trial | None:
        """The best partial or full training, by the best epoch of its model."""
        curves = list(self._curves().values())
        return best_training(curves, self.history, is_steady=self.settings.steady)

    @property
    def notes(self) -> Sequence[str]:
        """Advice if the budget is small or another method fits better."""
        return tuple((self.memo or {}).get("notes", {}).values())

    def refit(self, trial: Trial) -> Query:
        """Return the query of the final model, which ends at the best epoch."""
        best = trial.evaluation.best_epoch if trial.evaluation else None
        return Query(trial.query.configuration, epochs=best)

    @property
    def decisions(self) -> dict[str, Any]:
        """Epochs trained and spared, how trainings ended, and notes."""
        curves = list(self._curves().values())
        found = {**super().decisions, **decisions_of(curves, self.memo or {}, self.t_max)}
        least = best_training(curves, self.history, is_steady=False)
        if least is not None and least != self.incumbent:
            found["least"] = {"trial": least.number, "loss": least.loss}
        return found

    def pool(self, best: Candidates, rng: Generator) -> Candidates:
        """Return new candidates, from the prior and near the `best` configurations (if any)."""
        new = drawn_evenly(self._learner.inputs, _N_NEW, rng)
        if not len(best):
            return self._learner.inputs.snapped(new)
        origins = best[rng.integers(len(best), size=_N_NEAR)]
        widths = np.full((_N_NEAR, 1), _WIDTH)
        pool = new.joined(moved(self._learner.inputs, origins, widths, rng))
        return self._learner.inputs.snapped(pool)

    def begin(self, rng: Generator) -> Configuration:
        """Return a new configuration, of the prior or random, or raise `SpaceExhausted`."""
        if (repeated := self._next_repeated()) is not None:
            return repeated
        return new_configuration(self.space, self.history.asked, rng)

    def _propose(self, budget: Budget, rng: Generator) -> Query:
        curves, memo = self._curves(), dict(self.memo or {})
        memo["n_first"] = size = self._start_size(budget, curves)
        if self.settings.start == "halving":
            design = Design.halving(size, self.t_max)
        else:
            quantum = max(1, round(self.settings.p * self.t_max))
            design = Design.random(size, self.t_max, quantum)
        turn = BapiTurn(
            curves=curves,
            memo=memo,
            history=self.history,
            budget=budget,
            objective=self.objective,
            settings=self.settings,
            t_max=self.t_max,
            design=design,
            learner=self._learner,
            normals=self._normals,
            pool=self.pool,
            rng=rng,
        )
        query = self._query(turn, rng)
        memo["notes"] = advice_of(
            list(curves.values()),
            budget,
            self.t_max,
            n_plans=memo.get("n_plans", 0),
            earlier=memo.get("notes", {}),
        )
        self.memo = memo
        return query

    def _query(self, turn: BapiTurn, rng: Generator) -> Query:
        nothing = all_begun()
        try:
            query = self._ordered(turn.order(), rng)
        except SpaceExhausted as exhausted:
            # No configuration is left to begin, so the trainings under way are resumed.
            nothing, turn.budget = exhausted, replace(turn.budget, trials_left=0)
            query = self._ordered(turn.order(), rng)
        if query is not None:
            return query
        if self.history.pending:
            raise NotYet
        if turn.remaining.may_begin:
            self.begin(rng)  # raises if none is left
            nothing = SpaceExhausted("what is left of the budget affords no epoch")
        raise nothing

    def _ordered(self, order: Order | None, rng: Generator) -> Query | None:
        if order is None:
            return None
        configuration = order.configuration or self.begin(rng)
        self._because = order.because
        is_iterative = trains_in_epochs(configuration, self.space, self.objective)
        return Query(configuration, epochs=order.epochs if is_iterative else None)

    def _curves(self) -> Mapping[Configuration, LearningCurve]:
        seen, known = tuple(self.history), self._known[0]
        if len(seen) != len(known) or any(a is not b for a, b in zip(seen, known, strict=True)):
            curves = curves_of(self.history, self.space, self.objective, self.t_max)
            self._known = seen, curves
        return self._known[1]

    def _start_size(self, budget: Budget, curves: Mapping[Configuration, LearningCurve]) -> int:
        """Number of initial configurations, which shrinks if the budget proves small."""
        if self.settings.n_first is not None:
            return self.settings.n_first
        n_trials = None if budget.trials_left is None else len(curves) + budget.trials_left
        n_epochs = None
        rates = [c.rate for c in curves.values() if c.rate is not None]
        if budget.seconds_left is not None and rates:
            total = budget.seconds_spent + max(budget.seconds_left, 0.0)
            n_epochs = total / float(np.mean(rates))
        size = size_of_start(n_epochs, n_trials, self.t_max)
        before = (self.memo or {}).get("n_first", size)
        return int(before if len(curves) >= before else max(min(size, before), len(curves)))

    @cached_property
    def _learner(self) -> CurveLearner:
        return CurveLearner(self.space, self.objective, self.settings, self.t_max)
