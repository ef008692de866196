"""Successive halving, asynchronous: a worker that is free begins the next bracket.

Jamieson and Talwalkar 2016; that a rung is decided when all its runs are told, and that idle
workers begin the next bracket meanwhile, is how BOHB (Falkner et al. 2018) works in parallel.
"""

from typing import Any, ClassVar

import numpy as np

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.halving.brackets import Brackets, Plan
from prefect_tune.optimizers.methods.halving.declaration import HALVING
from prefect_tune.optimizers.methods.halving.fidelities import choose_rungs
from prefect_tune.optimizers.optimizer import NotYet, Optimizer
from prefect_tune.optimizers.reason import Reason
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.query import Query
from prefect_tune.optimizers.space.sampling import SpaceExhausted, new_configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.optimizers.trials.state import TrialState
from prefect_tune.optimizers.trials.trial import Trial

__all__ = ["Halving"]


class Halving(Optimizer):
    """Brackets of random configurations, all of which begin on the lowest rung.

    Raises:
        ValueError: If the study cannot have the fidelity.
    """

    method: ClassVar[Method] = HALVING

    def __init__(
        self, space: Space, seed: int, objective: Objective | None = None, **options: Any
    ) -> None:
        super().__init__(space, seed, objective, **options)
        self.rungs, self._reason = choose_rungs(space, self.objective, self.options)
        self.brackets = Brackets(len(self.rungs), self.options.eta, self.plan)
        self._drawn = ""

    def plan(self, index: int) -> Plan:  # noqa: ARG002 - all brackets are alike
        """Return how the bracket of that number begins."""
        return Plan(self.options.n or self.options.eta ** (len(self.rungs) - 1))

    def begin(self, rng: np.random.Generator) -> Configuration:
        """Return a configuration to begin with, one that was not asked for before.

        Raises:
            SpaceExhausted: If there is none.
        """
        self._drawn = "drawn at random"
        return new_configuration(self.space, self.history.asked, rng)

    @property
    def least_begun(self) -> int:
        """The configurations of the first bracket."""
        return self.plan(0).size

    @property
    def incumbent(self) -> Trial | None:
        """The best full trial; before there is one, the best of the highest rung reached."""
        if (best := self.history.incumbent) is not None:
            return best
        feasible = [t for t in self.history.stopped if self.history.violation(t) <= 0]
        return min(
            feasible,
            key=lambda t: (-self.rungs.level(t.query), t.loss, t.number),
            default=None,
        )

    @property
    def decisions(self) -> dict[str, Any]:
        """The rungs, why in this fidelity, and how many runs each has seen."""
        runs = [(self.rungs.level(t.query), t.state) for t in self.history if t.is_told]
        rungs = [
            {
                "level": level,
                "runs": sum(at == level for at, _ in runs),
                "failed": runs.count((level, TrialState.FAILED)),
            }
            for level in self.rungs.levels
        ]
        decided: dict[str, Any] = {
            "fidelity": self.rungs.fidelity,
            "reason": self._reason,
            "eta": self.options.eta,
            "levels": list(self.rungs.levels),
            "rungs": rungs,
        }
        if not self.history.complete and (self.history.stopped or (runs and self.history.pending)):
            size = self.least_begun
            note = f"the budget is smaller than a bracket, which begins {size} configurations"
            decided["notes"] = [f"nothing was evaluated in full: {note}"]
        return decided

    def _propose(self, budget: Budget, rng: np.random.Generator) -> Query:
        self.brackets.catch_up(self.history)
        if (run := self.brackets.promotion(self.history)) is not None:
            return self._go_on(run)
        nothing_new = SpaceExhausted("all configurations of the budget were begun, and have ended")
        if budget.trials_left != 0:
            try:
                return self._asked(self.begin(rng), self.brackets.first_rung, self._drawn)
            except SpaceExhausted as exhausted:
                nothing_new = exhausted
        if (run := self.brackets.promotion(self.history, closing=True)) is not None:
            return self._go_on(run)
        if self.history.pending:
            raise NotYet
        raise nothing_new

    def _go_on(self, run: Trial) -> Query:
        configuration = run.query.configuration
        rung = self.brackets.rung_above(configuration)
        return self._asked(configuration, rung, "among the best of the rung below")

    def _asked(self, configuration: Configuration, rung: int, why: str) -> Query:
        """Return the query of a configuration on a rung, from 0, and say why."""
        bracket, n_rungs = self.brackets.number_of(configuration) + 1, len(self.rungs)
        self._because = Reason(f"bracket {bracket}, rung {rung + 1} of {n_rungs}", why)
        return self.rungs.query(configuration, rung)
