"""One ask of BAPI: what it asks for, from the curves, the memo of the last ask, and the budget."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, inf, isfinite
from statistics import fmean
from typing import Any

import numpy as np

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Reason
from prefect_tune.optimizers.methods.bapi.costs import Overheads
from prefect_tune.optimizers.methods.bapi.curves import LearningCurve
from prefect_tune.optimizers.methods.bapi.declaration import Settings
from prefect_tune.optimizers.methods.bapi.learner import CurveBelief, CurveLearner
from prefect_tune.optimizers.methods.bapi.observations import largest_told, most_telling
from prefect_tune.optimizers.methods.bapi.planning import (
    PlannedTraining,
    Planning,
    Prospects,
    enough_epochs,
    verdict,
)
from prefect_tune.optimizers.methods.bapi.start import Design, clipped
from prefect_tune.optimizers.methods.rungs import Begin, Done, GoOn, Wait
from prefect_tune.optimizers.space.candidate_space import Candidates
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.surrogates.kernel import Array
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Objective

_LEAST_CURVES = 4
"""With scores, before anything can be planned."""
_N_BEST = 4
_EPSILON_OF_SPREAD = 0.02
"""Of the interquartile range of what was told, of any other metric."""
_LEAST_EPSILON = 1e-6
_LOOKS_A_STRETCH = 5
"""Of a stretch, the least time in looks of the planner, so that these stay a small part."""
_WORTHWHILE = 0.1
"""Of epsilon: the gain for which trainings go on where only trials end a study."""
_STARTED = Reason("start", "begun: a new configuration")
_PROMOTED = Reason("start", "gone on with: among the best after as many epochs")
_STILL_WINS = Reason("training", "gone on with: it may still win")
_PLANNED = Reason("plan", "begun: of the plan that promises most for what is left of the budget")
_THAWED = Reason("plan", "gone on with: of the plan that promises most for what is left")
_ENDED = Reason("end", "gone on with: the best so far, trained to the end")


@dataclass(frozen=True, slots=True)
class Order:
    """A training that is asked for.

    Attributes:
        configuration: None for a random one that is new.
        epochs: From its start.
        because: Why, for people.
    """

    configuration: Configuration | None
    epochs: int
    because: Reason


@dataclass
class BapiTurn:
    """The parts of an ask, in the order in which they are tried.

    Attributes:
        curves: All that were begun, in that order.
        memo: Of the last ask; changed into that of this one.
        history: All trials.
        budget: What is left.
        objective: What is minimised.
        settings: Of the method.
        t_max: Epochs of a full training.
        design: Of the start.
        learner: Of curves and costs.
        normals: Of fantasies.
        pool: From the best configurations to new candidates.
        rng: Source of randomness.
    """

    curves: Mapping[Configuration, LearningCurve]
    memo: dict[str, Any]
    history: History
    budget: Budget
    objective: Objective
    settings: Settings
    t_max: int
    design: Design
    learner: CurveLearner
    normals: Array
    pool: Callable[[Candidates, np.random.Generator], Candidates]
    rng: np.random.Generator

    @property
    def may_begin(self) -> bool:
        """Whether new configurations may be begun."""
        return self.budget.trials_left != 0

    @property
    def quantum(self) -> int:
        """Epochs after which a training is looked at."""
        return max(1, round(self.settings.p * self.t_max))

    @property
    def first_look(self) -> int:
        """Epochs after which a new training is looked at for the first time."""
        if not self.settings.looks_early:
            return self.quantum
        return min(self.quantum, max(2, round(self.t_max / 25)))

    @property
    def longest(self) -> float:
        """Seconds that one training may take: one worker's part of those left."""
        left = self.budget.seconds_left
        return inf if left is None else left / max(self.budget.n_workers, 1)

    @cached_property
    def n_known(self) -> int:
        """Configurations of which a loss is known."""
        return sum(bool(c.epochs) for c in self.curves.values())

    @cached_property
    def least_loss(self) -> float:
        """The least loss that meets the constraints; of all, where none does."""
        ended = [t for t in self.history if t.loss is not None]
        feasible = [t for t in ended if self.history.violation(t) <= 0]
        return min((t.loss for t in feasible or ended if t.loss is not None), default=inf)

    @cached_property
    def epsilon(self) -> float:
        """Loss that may be added by ending a training early."""
        if self.settings.epsilon is not None:
            return self.settings.epsilon
        width = self.objective.upper - self.objective.lower
        if isfinite(width):
            return self.settings.epsilon_share * width
        losses = np.array([c.loss for c in self.curves.values() if c.epochs])
        if not len(losses):
            return _LEAST_EPSILON
        capped = np.minimum(losses, largest_told(losses, self.objective))
        low, high = np.quantile(capped, (0.25, 0.75))
        return max(_EPSILON_OF_SPREAD * float(high - low), _LEAST_EPSILON)

    def of_start(self) -> Order | None:
        """Return what the start asks for; None where it has ended, or waits and others may go."""
        step = self.design.next(self.curves, may_begin=self.may_begin)
        least = min(_LEAST_CURVES, self.design.counts[0])
        if isinstance(step, Wait | Done) and self.n_known < least and self.may_begin:
            step = Begin(self.design.epochs[0])
        left, n_workers = self.budget.seconds_left, self.budget.n_workers
        affordable = clipped(step, self.curves.values(), left, n_workers)
        if isinstance(affordable, Wait | Done):
            return None
        if isinstance(affordable, GoOn):
            return Order(affordable.configuration, affordable.level, _PROMOTED)
        # A random model may have no epochs: the plan knows which can be had in part.
        return Order(None, affordable.level, _STARTED) if affordable == step else None

    def of_undecided(self) -> Order | None:
        """Return the training that goes on, of those told that were not decided on yet."""
        targets: dict[str, int] = dict(self.memo.get("targets", {}))
        told = [n for n in sorted(map(int, targets)) if self.history[n].is_told]
        if not told:
            return None
        belief = self.learner.recall(list(self.curves.values()), self.memo)
        self.memo["targets"] = targets
        for number in told:
            target = targets.pop(str(number))
            curve = self.curves[self.history[number].query.configuration]
            if curve.is_closed or curve.is_pending:
                continue
            epochs = self._decided(curve, target, belief)
            if epochs is not None:
                return self._ordered(curve.configuration, curve.done, epochs, _STILL_WINS)
        return None

    def of_plan(self) -> Order | None:
        """Return the next configuration of a plan of what is left, if there is any."""
        if not self.n_known:
            return None
        belief, kept = self.learner.learn(list(self.curves.values()), self.memo, self.rng)
        self.memo |= kept
        planning = self._planning(belief)
        left = self.budget.seconds_left
        entries = planning.entries(inf if left is None else left - planning.pending_seconds)
        if not self.may_begin:
            entries = self._worthwhile(entries, planning)
        if not entries:
            return None
        spent = self._spent_share()
        entry = planning.chosen(entries, spent)
        configuration = planning.prospects.configuration(entry.number)
        done = int(planning.prospects.done[entry.number])
        because = _THAWED if done else _PLANNED
        if done:
            self.memo["thawed"] = self.memo.get("thawed", 0) + 1
        if not planning.prospects.is_divisible[entry.number]:
            return Order(configuration, entry.epochs, because)
        return self._ordered(configuration, done, entry.epochs, because)

    def of_best(self) -> Order | None:
        """Return the best configuration, to be trained to the end if none was."""
        if self.may_begin or self.history.complete:
            return None
        going = [c for c in self.curves.values() if c.epochs and not c.is_closed]
        if not going or any(c.is_pending for c in self.curves.values()):
            return None
        best = min(going, key=lambda c: c.loss)
        left, n_workers = self.budget.seconds_left, self.budget.n_workers
        whole = GoOn(best.configuration, self.t_max)
        step = clipped(whole, self.curves.values(), left, n_workers)
        return Order(best.configuration, step.level, _ENDED) if isinstance(step, GoOn) else None

    def _ordered(
        self, configuration: Configuration | None, done: int, epochs: int, because: Reason
    ) -> Order:
        """Return the next stretch of a training, whose target is noted."""
        self.memo.setdefault("targets", {})
        self.memo["targets"] = {**self.memo["targets"], str(len(self.history)): epochs}
        ahead = max(self.quantum if done else self.first_look, self._epochs_of_looks(configuration))
        return Order(configuration, min(epochs, done + ahead), because)

    def _epochs_of_looks(self, configuration: Configuration | None) -> int:
        """Return the epochs of a stretch that takes long enough to be worth its look.

        As long as five looks, or two for each worker: one planner serves them all.
        """
        looks = self.budget.last_ask_seconds
        rates = {c.configuration: c.rate for c in self.curves.values() if c.rate is not None}
        if not looks or not rates:
            return 1
        typical = float(np.median(list(rates.values())))
        rate = typical if configuration is None else rates.get(configuration, typical)
        least = fmean(looks) * max(_LOOKS_A_STRETCH, 2 * self.budget.n_workers)
        return ceil(min(least / max(rate, 1e-9), self.t_max))

    def _decided(self, curve: LearningCurve, target: int, belief: CurveBelief) -> int | None:
        """Return the epochs that a training goes on to in all; None if it ends here."""
        row = self.learner.inputs.of(self.learner.inputs.encode([curve.configuration]))
        if self.settings.early_stopping:
            expected = belief.curve(row, is_known=True)
            enough = enough_epochs(expected, self.epsilon, curve.done)
            rows, epochs = np.repeat(row, 2, axis=0), np.array([enough, curve.done])
            _, deviation = belief.outcome(rows, epochs)
            said = verdict(
                done=curve.done,
                target=enough,
                mean=belief.scores.of_loss(float(expected[enough - 1])),
                deviation=float(deviation[0]),
                deviation_now=float(deviation[1]),
                best=belief.scores.of_loss(self.least_loss),
                tau=self.settings.tau,
                sure=self.settings.sure,
            )
        else:
            enough, said = target, "finished" if curve.done >= target else "goes on"
        if said != "goes on":
            last = {str(c.trials[-1].number) for c in self.curves.values() if c.done < self.t_max}
            kept = {n: v for n, v in self.memo.get("verdicts", {}).items() if n in last}
            self.memo["verdicts"] = {**kept, str(curve.trials[-1].number): said}
            return None
        if self.budget.seconds_left is None:
            return enough
        left = min(self.budget.seconds_left - self._pending_seconds(belief), self.longest)
        affordable = floor(left / float(belief.seconds(row)[0]))
        return min(enough, curve.done + affordable) if affordable >= 1 else None

    def _pending_seconds(self, belief: CurveBelief) -> float:
        """Return the seconds that what is under way is expected to take."""
        pending = [c for c in self.curves.values() if c.is_pending]
        if not pending:
            return 0.0
        rows = self.learner.inputs.of(self.learner.inputs.encode(c.configuration for c in pending))
        left = np.array([max(c.target - c.done, 0) for c in pending])
        return float(left @ belief.seconds(rows))

    def _planning(self, belief: CurveBelief) -> Planning:
        return Planning(
            prospects=self._prospects(),
            belief=belief,
            overheads=Overheads.of(list(self.curves.values())),
            settings=self.settings,
            best=belief.scores.of_loss(self.least_loss),
            epsilon=self.epsilon,
            longest=self.longest,
            quantum=self.quantum,
            normals=self.normals,
        )

    def _prospects(self) -> Prospects:
        """Return the trainings that may be gone on with, those under way, and new candidates."""
        inputs = self.learner.inputs
        curves = [c for c in self.curves.values() if c.is_pending]
        curves = [*most_telling([c for c in self.curves.values() if not c.is_pending]), *curves]
        waits = self.design.waiting(self.curves)
        begun = [
            c
            for c in curves
            if c.is_pending or (not c.is_closed and c.is_iterative and c.configuration not in waits)
        ]
        told = sorted((c for c in curves if c.epochs), key=lambda c: c.loss)
        encoded = inputs.encode(c.configuration for c in begun)
        new = Candidates(encoded.algorithms[:0], encoded.units[:0])
        if self.may_begin:
            best = inputs.encode(c.configuration for c in told[:_N_BEST])
            new = self._unlike(self.pool(best, self.rng))
        pool = encoded.joined(new)
        n_new = len(new)
        known: dict[int, Configuration | None] = {i: c.configuration for i, c in enumerate(begun)}

        def configuration(j: int) -> Configuration | None:
            if j not in known:
                decoded = inputs.candidates.decode(pool, j)
                known[j] = None if decoded in self.curves else decoded
            return known[j]

        return Prospects(
            inputs=inputs.of(pool),
            done=np.array([*(c.done for c in begun), *[0] * n_new], dtype=np.intp),
            targets=np.array(
                [*(c.target if c.is_pending else 0 for c in begun), *[0] * n_new], dtype=np.intp
            ),
            is_divisible=self.learner.trains_in_epochs(pool),
            configuration=configuration,
        )

    def _unlike(self, new: Candidates) -> Candidates:
        """Return new candidates of which none is twice there, or was begun."""
        inputs = self.learner.inputs
        begun = inputs.of(inputs.encode(self.curves))
        rows = np.vstack([begun, inputs.of(new)])
        _, first = np.unique(rows.round(9), axis=0, return_index=True)
        fresh = np.sort(first[first >= len(begun)]) - len(begun)
        return new[fresh]

    def _worthwhile(
        self, entries: list[PlannedTraining], planning: Planning
    ) -> list[PlannedTraining]:
        """Return the entries that may gain something, where no seconds end a study."""
        if not entries:
            return []
        rows = planning.prospects.inputs[[e.number for e in entries]]
        improvement = planning.belief.improvement(rows, self.t_max, planning.best)
        gains = planning.belief.scores.loss_of_gain(improvement, planning.best)
        return [
            e for e, gain in zip(entries, gains, strict=True) if gain >= _WORTHWHILE * self.epsilon
        ]

    def _spent_share(self) -> float:
        """Return the share of the budget that is spent: of seconds, else of configurations.

        Where no more may be begun and no seconds end the study, all of it is.
        """
        budget = self.budget
        if budget.seconds_left is not None:
            total = budget.seconds_spent + max(budget.seconds_left, 0.0)
            return budget.seconds_spent / total if total > 0 else 1.0
        if budget.trials_left is None:
            return 0.0
        return len(self.curves) / (len(self.curves) + budget.trials_left)
