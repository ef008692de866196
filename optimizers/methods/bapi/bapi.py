"""BAPI: planning the budget over configurations and epochs (Belakaria et al. 2022).

Algorithm 2, line 1 (initial points)     Turn.initial, planning.Design
             lines 2, 9 (GP_f, GP_c)     belief.CurveLearner.learn
             lines 3, 4, 10 (B_r)        planning.Remaining
             line 5 (algorithm 4, NMO)   Turn.plan, planning.Prospects.plan
             line 6 (choice)             planning.chosen_entry
             line 7 (algorithm 5)        Turn.evaluation, planning.verdict
Equation 8, algorithm 3 (t_opt)          planning.enough_epochs
Section 3.4 (points of a curve)          curves.chosen_epochs
Equations 9 to 18 (slopes), 20 to 24     models.monotone, models.curve_kernel

`variant=paper` follows the paper. The default variant starts with successive halving, plans one
configuration ahead, does not constrain slopes, and models the logarithms of run times and losses.
The default variant also stops configurations that are far behind, and its incumbent has the lowest
mean loss over a window of epochs. Both variants depart from the paper:

- The maximum over configurations is taken over random candidates.
- The last point of q-EI is integrated in closed form.
- If no initial training run is complete, the best one is trained to the last epoch.
- The remaining budget excludes the cost of pending training runs.
- Of more than 150 curves, 150 are fitted to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isfinite
from statistics import median
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Method, Reason
from prefect_tune.optimizers.methods.bapi.belief import CurveBelief, CurveLearner
from prefect_tune.optimizers.methods.bapi.curves import (
    LearningCurve,
    best_training,
    curves_of,
    largest_informative_loss,
    most_telling,
)
from prefect_tune.optimizers.methods.bapi.planning import (
    Begin,
    Design,
    Done,
    PlannedTraining,
    Planning,
    Promote,
    Remaining,
    Wait,
    enough_epochs,
    first_epochs,
    verdict,
)
from prefect_tune.optimizers.methods.declarations import BAPI, ENDS
from prefect_tune.optimizers.methods.halving import all_begun, model_of
from prefect_tune.optimizers.optimizer import NotYet, Optimizer
from prefect_tune.optimizers.search.improvement import N_SOBOL, expected_improvement
from prefect_tune.optimizers.search.maximize import N_STARTS, pool_around
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.sampling import SpaceExhausted, new_configuration
from prefect_tune.optimizers.space.vectors import Candidates
from prefect_tune.optimizers.trials.trial import Trial

_LEAST_EPOCHS = 5
_INSTEAD = "use another method, such as smac or fabolas"
_DECIDED = ("finished", "stopped")


class Bapi(Optimizer):
    """Budget-aware planning over configurations and epochs.

    Raises ValueError if no model trains in epochs, or if the number of epochs is missing or too
    small.
    """

    method: ClassVar[Method] = BAPI

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.settings = self.options.resolved()
        self.t_max = self._checked_epochs()
        self.quantum = max(1, round(self.settings.p * self.t_max))
        self._known: tuple[tuple[Trial, ...], Mapping[Configuration, LearningCurve]] = (), {}

    def _checked_epochs(self) -> int:
        epochs, models = self.objective.epochs, self.space.steps[-1].algorithms
        if not any(a.id in self.objective.iterative for a in models):
            raise ValueError(
                f"method {self.name} needs models that train in epochs, but space "
                f"{self.space.name!r} has no such model; {_INSTEAD}"
            )
        if epochs is None:
            raise ValueError(
                f"method {self.name} needs a number of epochs; add --epochs, such as 50"
            )
        if epochs < _LEAST_EPOCHS:
            raise ValueError(
                f"{epochs} epochs are too few for method {self.name}, which learns from learning "
                f"curves; set --epochs to at least {_LEAST_EPOCHS}, or {_INSTEAD}"
            )
        return epochs

    @property
    def incumbent(self) -> Trial | None:
        """The trial with the lowest mean loss over a window twice as long as a check interval.

        In the paper, the incumbent is the trial with the lowest loss.
        """
        width = 1 if self.is_of_paper else 2 * self.quantum
        return best_training(list(self.curves.values()), self.history, width=width)

    @property
    def notes(self) -> Sequence[str]:
        """Advice to use another method, given if an epoch takes less time than a proposal."""
        memo = self.memo or {}
        return [memo["note"]] if "note" in memo else []

    @staticmethod
    def refit(trial: Trial) -> Query:
        """Return the query for the final model, which is trained to the best epoch of the trial."""
        best = trial.evaluation.best_epoch if trial.evaluation else None
        return Query(trial.query.configuration, epochs=best)

    @property
    def decisions(self) -> dict[str, Any]:
        """Numbers of epochs trained and saved, outcomes of training, and notes, as JSON values.

        Epochs count as saved only if the method ended training, not if the budget ran out or better
        configurations were promoted.
        """
        curves, memo = list(self.curves.values()), self.memo or {}
        told = [c for c in curves if c.epochs and c.is_iterative]
        ends = [self._end(c) for c in told]
        spared = [self.t_max - c.done for c, end in zip(told, ends, strict=True) if end in _DECIDED]
        found = {
            **super().decisions,
            "t_max": self.t_max,
            "configurations": len(told),
            "at_once": sum(bool(c.epochs) for c in curves) - len(told),
            "epochs": sum(c.done for c in told),
            "spared": sum(spared),
            "ends": {
                **{end: ends.count(end) for end in ENDS},
                "failed": sum(c.has_failed for c in curves),
            },
            "thawed": memo.get("thawed", 0),
            "notes": list(self.notes),
        }
        least = best_training(curves, self.history)
        if least is not None and least != self.incumbent:
            found["least"] = {"trial": least.number, "loss": least.loss}
        return found

    def _end(self, curve: LearningCurve) -> str:
        if curve.done >= self.t_max:
            return "full"
        if curve.trouble:
            return "diverged"
        verdicts: dict[str, str] = (self.memo or {}).get("verdicts", {})
        return verdicts.get(str(curve.trials[-1].number), "left")

    def pool(self, best: Candidates, rng: Generator) -> Candidates:
        """Return new candidates, drawn from the prior and near the `best` configurations."""
        return pool_around(self.learner.inputs, best, 2 * N_SOBOL, rng)

    def begin(self, rng: Generator) -> Configuration:
        """Return a new configuration from an earlier run or at random, or raise SpaceExhausted."""
        if (repeated := self._next_repeated()) is not None:
            return repeated
        return new_configuration(self.space, self.history.asked, rng)

    @property
    def curves(self) -> Mapping[Configuration, LearningCurve]:
        """The learning curves of the configurations, in the order of their first trials."""
        seen, known = tuple(self.history), self._known[0]
        if len(seen) != len(known) or any(a is not b for a, b in zip(seen, known, strict=True)):
            curves = curves_of(self.history, self.space, self.objective, self.t_max)
            self._known = seen, curves
        return self._known[1]

    def _propose(self, budget: Budget, rng: Generator) -> Query:
        turn = Turn(self, budget, dict(self.memo or {}), rng)
        query = self._query(turn)
        rates = [c.rate for c in self.curves.values() if c.is_iterative and c.rate is not None]
        if "note" not in turn.memo and "theta" in turn.memo and budget.last_ask_seconds:
            epoch, ask = median(rates or [inf]), median(budget.last_ask_seconds)
            if epoch < ask:
                turn.memo["note"] = (
                    f"an epoch takes {1000 * epoch:.3g} ms, less than a proposal ({1000 * ask:.3g} "
                    "ms); --method bohb would spend more of the time on training"
                )
        self.memo = turn.memo
        return query

    def _query(self, turn: "Turn") -> Query:
        nothing = all_begun()
        try:
            query = self._ordered(turn)
        except SpaceExhausted as exhausted:
            # No new configuration is left, so unfinished training runs are resumed.
            nothing, turn.budget = exhausted, replace(turn.budget, trials_left=0)
            query = self._ordered(turn)
        if query is not None:
            return query
        if self.history.pending:
            raise NotYet
        if turn.may_begin:
            self.begin(turn.rng)  # raises SpaceExhausted if no new configuration is left
            nothing = SpaceExhausted("the remaining budget is too small for another epoch")
        raise nothing

    def _ordered(self, turn: "Turn") -> Query | None:
        if (order := turn.order()) is None:
            return None
        configuration = order.configuration or self.begin(turn.rng)
        self._because = order.because
        is_iterative = model_of(configuration, self.space) in self.objective.iterative
        return Query(configuration, epochs=order.epochs if is_iterative else None)

    @cached_property
    def learner(self) -> CurveLearner:
        """The learner that fits beliefs about this space."""
        return CurveLearner(self.space, self.objective, self.settings, self.t_max)


_STARTED = Reason("start", "started: a new configuration")
_PROMOTED = Reason("start", "resumed: among the best after the same number of epochs")
_STILL_WINS = Reason("training", "resumed: the configuration may still become the best")
_PLANNED = Reason("plan", "started: part of the best plan for the rest of the budget")
_THAWED = Reason("plan", "resumed: part of the best plan for the rest of the budget")
_ENDED = Reason("end", "resumed: the best configuration so far, now to the last epoch")


@dataclass(frozen=True, slots=True)
class Order:
    """A configuration to train, up to an epoch. If `configuration` is None, one is drawn."""

    configuration: Configuration | None
    epochs: int
    because: Reason


@dataclass
class Turn:
    """One ask, which is one pass through the loop of algorithm 2.

    The ask returns `memo` as its memo.
    """

    method: Bapi
    budget: Budget
    memo: dict[str, Any]
    rng: Generator

    def order(self) -> Order | None:
        """Return the next training run to propose; None if no training run is due.

        The training runs of line 7 take place between asks, so each ask re-enters the loop at the
        line determined by the finished trials.
        """
        return self.initial() or self.evaluation() or self.plan() or self.end()

    def initial(self) -> Order | None:
        """Line 1: return the next initial training run; None if all have ended or are pending."""
        step = self.design.next(self.curves, may_begin=self.may_begin)
        if isinstance(step, Wait | Done) and not self.known and self.may_begin:
            step = Begin(self.design.epochs[0])
        if isinstance(step, Promote):
            epochs = self.remaining.epochs(self.curves[step.configuration], step.epochs)
            return Order(step.configuration, epochs, _PROMOTED) if epochs else None
        if isinstance(step, Begin) and self.remaining.epochs(None, step.epochs) == step.epochs:
            # A random model may not train in epochs. Only the plan checks for such models.
            return Order(None, step.epochs, _STARTED)
        return None

    def evaluation(self) -> Order | None:
        """Line 7, algorithm 5: return the next part of a training run that should continue."""
        planned = list(self.memo.get("planned", ()))
        told = [n for n in planned if self.method.history[n].is_told]
        if not told:
            return None
        belief = self.learner.recall(list(self.curves.values()), self.memo)
        self.memo["planned"] = planned
        for number in told:
            planned.remove(number)
            curve = self.curves[self.method.history[number].query.configuration]
            if curve.is_closed or curve.is_pending:
                continue
            enough, outcome = self._verdict(curve, belief)
            if outcome == "continues":
                if epochs := self.remaining.epochs(curve, enough):
                    return self._part(curve.configuration, curve.done, epochs, _STILL_WINS)
                continue
            # Drop verdicts on training runs that were resumed afterwards.
            last = {str(c.trials[-1].number) for c in self.curves.values()}
            verdicts = {**self.memo.get("verdicts", {}), str(curve.trials[-1].number): outcome}
            self.memo["verdicts"] = {n: v for n, v in verdicts.items() if n in last}
        return None

    def plan(self) -> Order | None:
        """Lines 5, 6 and 9: fit the models, plan the remaining budget, and return the choice."""
        if not self.known:
            return None
        belief, kept = self.learner.learn(list(self.curves.values()), self.memo, self.rng)
        self.memo |= kept
        planning = self._planning(belief)
        if (entry := self._entry(planning)) is None:
            return None
        if (configuration := planning.configuration(entry.number)) is None:
            return None
        done = int(planning.prospects.done[entry.number])
        because = _THAWED if done else _PLANNED
        self.memo["thawed"] = self.memo.get("thawed", 0) + (done > 0)
        if not planning.prospects.is_divisible[entry.number]:
            return Order(configuration, entry.epochs, because)
        return self._part(configuration, done, entry.epochs, because)

    def end(self) -> Order | None:
        """If no trial is complete, return the best configuration, to train to the last epoch."""
        if self.may_begin or self.method.history.complete or self.method.is_of_paper:
            return None
        going = [c for c in self.known if not c.is_closed]
        if not going or self.method.history.pending:
            return None
        best = min(going, key=lambda c: c.loss)
        epochs = self.remaining.epochs(best, self.method.t_max)
        return Order(best.configuration, epochs, _ENDED) if epochs else None

    @property
    def may_begin(self) -> bool:
        """Whether the budget allows new configurations."""
        return self.budget.trials_left != 0

    @property
    def curves(self) -> Mapping[Configuration, LearningCurve]:
        """The learning curves of the configurations, in the order of their first trials."""
        return self.method.curves

    @property
    def known(self) -> list[LearningCurve]:
        """The learning curves with at least one loss."""
        return [c for c in self.curves.values() if c.epochs]

    @property
    def learner(self) -> CurveLearner:
        """The learner that fits beliefs about the space."""
        return self.method.learner

    @cached_property
    def remaining(self) -> Remaining:
        """The remaining budget (lines 3, 4 and 10)."""
        return Remaining.of(self.budget, self.curves.values())

    @cached_property
    def design(self) -> Design:
        """The initial design.

        Until all its configurations have started, the design shrinks if the budget proves small.
        """
        t_max, settings = self.method.t_max, self.method.settings
        if settings.is_paper:
            return Design.random(settings.n_first, t_max, self.method.quantum)
        if settings.n_first is not None:
            return Design.halving(settings.n_first, t_max)
        n, budget = len(self.curves), self.budget
        n_configurations = inf if budget.trials_left is None else n + budget.trials_left
        n_epochs = inf
        if budget.seconds_left is not None and self.remaining.rate is not None:
            n_epochs = (budget.seconds_spent + budget.seconds_left) / self.remaining.rate
        size = Design.affordable(n_epochs, n_configurations, t_max).counts[0]
        before = self.memo.get("n_first", size)
        self.memo["n_first"] = before if n >= before else max(min(size, before), n)
        return Design.halving(self.memo["n_first"], t_max)

    @cached_property
    def least_loss(self) -> float:
        """The lowest feasible loss (minus y_best), or the lowest loss if no trial is feasible."""
        history = self.method.history
        ended = [t for t in history if t.loss is not None]
        feasible = [t for t in ended if history.violation(t) <= 0]
        return min((t.loss for t in feasible or ended if t.loss is not None), default=inf)

    @cached_property
    def epsilon(self) -> float:
        """Epsilon of equation 8: the increase in loss accepted for ending training early.

        In the paper, epsilon is 0.01 or, for metrics without a range, the smallest difference
        between a loss and the final loss of the same training run.
        """
        if (given := self.method.settings.epsilon) is not None:
            return given
        objective, is_of_paper = self.method.objective, self.method.is_of_paper
        width = objective.upper - objective.lower
        if is_of_paper and not isfinite(width):
            full = [c for c in self.known if c.done >= self.method.t_max]
            return min((c.loss_at(e) - c.loss for c in full for e in c.epochs[:-1]), default=0.0)
        if not isfinite(width):
            losses = np.array([c.loss for c in self.known])
            width = float(np.ptp(np.minimum(losses, largest_informative_loss(losses, objective))))
        return (0.01 if is_of_paper else 0.003) * width

    def _part(self, configuration: Configuration, done: int, target: int, why: Reason) -> Order:
        """Return a training run up to its next check; record the check (algorithm 5, line 6)."""
        self.memo["planned"] = [*self.memo.get("planned", ()), len(self.method.history)]
        ahead = self.method.quantum
        if not done and not self.method.is_of_paper:
            ahead = min(ahead, first_epochs(self.method.t_max))
        return Order(configuration, min(target, done + ahead), why)

    def _verdict(self, curve: LearningCurve, belief: CurveBelief) -> tuple[int, str]:
        """Return t_opt and the verdict on a training run."""
        row = self.learner.inputs.of(self.learner.inputs.encode([curve.configuration]))
        expected = belief.curve(row, is_known=True)
        enough = enough_epochs(expected, self.epsilon, curve.done)
        epochs = np.array([enough, curve.done])
        predict = belief.predict if self.method.is_of_paper else belief.outcome
        _, (deviation, deviation_now) = predict(np.repeat(row, 2, axis=0), epochs)
        return enough, verdict(
            done=curve.done,
            target=enough,
            mean=float(belief.scores.scores(expected[enough - 1])),
            deviation=float(deviation),
            deviation_now=float(deviation_now),
            best=float(belief.scores.scores(self.least_loss)),
            is_paper=self.method.is_of_paper,
        )

    def _planning(self, belief: CurveBelief) -> Planning:
        inputs, waits = self.learner.inputs, self.design.waiting(self.curves)
        pending = [c for c in self.curves.values() if c.is_pending]
        begun = [
            c
            for c in most_telling([c for c in self.curves.values() if not c.is_pending])
            if not c.is_closed and c.is_iterative and c.configuration not in waits
        ]
        best_first = sorted(self.known, key=lambda c: c.loss)[:N_STARTS]
        new = inputs.encode(c.configuration for c in best_first)
        new = self._unlike(self.method.pool(new, self.rng)) if self.may_begin else new[:0]
        best = float(belief.scores.scores(self.least_loss))
        everything = [*begun, *pending]
        return Planning(everything, new, self.learner, belief, best=best, epsilon=self.epsilon)

    def _unlike(self, new: Candidates) -> Candidates:
        """Return the candidates, excluding duplicates and configurations already started."""
        inputs = self.learner.inputs
        begun = inputs.of(inputs.encode(self.curves))
        rows = np.vstack([begun, inputs.of(new)])
        _, first = np.unique(rows.round(9), axis=0, return_index=True)
        return new[np.sort(first[first >= len(begun)]) - len(begun)]

    def _entry(self, planning: Planning) -> PlannedTraining | None:
        """Return the next planned training run; None if no planned run is worthwhile."""
        entries = self.entries(planning, self.remaining)
        if not self.may_begin:
            entries = self._worthwhile(entries, planning)
        return planning.chosen(entries) if entries else None

    def entries(self, planning: Planning, remaining: Remaining) -> list[PlannedTraining]:
        """Return the plan for the remaining budget."""
        horizon, quantum = self.method.settings.horizon, self.method.quantum
        of_all, is_paper = planning.improvement(horizon, self.method.seed), self.method.is_of_paper
        return planning.prospects.plan(
            *of_all, remaining, horizon=horizon, quantum=quantum, is_paper=is_paper
        )

    def _worthwhile(
        self, entries: list[PlannedTraining], planning: Planning
    ) -> list[PlannedTraining]:
        """Return the entries that may improve the loss by at least p times epsilon.

        If no new configuration may be started, all other entries are dropped, because a training
        run may take a fraction p of the epochs until its next check.
        """
        rows = planning.inputs[[e.number for e in entries]]
        mean, deviation = planning.belief.predict(rows, self.method.t_max)
        gains = expected_improvement(-mean, deviation, -planning.best)
        scores = planning.belief.scores.scores
        gain = self.method.settings.p * self.epsilon
        least = float(scores(self.least_loss - gain)) - planning.best
        return [e for e, gained in zip(entries, gains, strict=True) if gained >= least]
