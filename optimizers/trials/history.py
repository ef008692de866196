"""The trials so far as models need them, and the number of trials a budget affords."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, islice
from math import inf
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.vectors import Array
from prefect_tune.optimizers.trials.earlier import OlderTrials, Prior, Transfer
from prefect_tune.optimizers.trials.objective import Constraint, FailureCost, Objective, violation
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial

Rank = tuple[float, ...]
"""Sort key of a trial, least first, ending with its number."""


class History:
    """Trials by number; the only mutable state that optimizers share.

    A trial enters when it is requested, and each later state of it replaces the earlier one.
    Recording a state, and reading the incumbent or the known configurations, takes constant time.
    Other queries read all trials of their kind.

    Attributes:
        prior: Observations of earlier runs, if any; set before the first ask.
        estimated: Numbers of trials whose loss is an estimate, which `transfer` ignores.
    """

    def __init__(self, constraints: Sequence[Constraint] = ()) -> None:
        self.constraints = tuple(constraints)
        self.prior: Prior | None = None
        self.estimated: set[int] = set()
        self._older: OlderTrials | None = None
        self._trials: dict[int, Trial] = {}
        self._by_state: dict[TrialState, dict[int, Trial]] = {state: {} for state in TrialState}
        self._asked: dict[Configuration, list[int]] = {}
        self._ranked: list[Rank] = []
        self._ranked_partial: list[Rank] = []
        self._infeasible: list[Rank] = []

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[Trial]:
        return iter(self._trials.values())

    def __contains__(self, number: int) -> bool:
        return number in self._trials

    def __getitem__(self, number: int) -> Trial:
        return self._trials[number]

    def get(self, number: int) -> Trial | None:
        """Return the trial of that number, if it was requested."""
        return self._trials.get(number)

    def record(self, trial: Trial) -> None:
        """Add a trial, or replace its earlier state."""
        self._older = None
        former = self._trials.get(trial.number)
        if former is None:
            self._asked.setdefault(trial.query.configuration, []).append(trial.number)
        else:
            del self._by_state[former.state][former.number]
            if (ranking := self._ranking(former)) is not None:
                ranked, rank = ranking
                del ranked[bisect_left(ranked, rank)]
        self._trials[trial.number] = trial
        self._by_state[trial.state][trial.number] = trial
        if (ranking := self._ranking(trial)) is not None:
            insort(*ranking)

    def _ranking(self, trial: Trial) -> tuple[list[Rank], Rank] | None:
        if trial.evaluation is None:
            return None
        query, loss = trial.query, trial.evaluation.loss
        is_full = trial.state == TrialState.COMPLETE
        if (excess := self.violation(trial)) > 0:
            return self._infeasible, (not is_full, excess, loss, trial.number)
        if is_full:
            return self._ranked, (loss, trial.number)
        shares = (query.subset, query.folds or inf, query.epochs or inf)
        return self._ranked_partial, (*(-share for share in shares), loss, trial.number)

    def _of(self, *states: TrialState) -> tuple[Trial, ...]:
        trials = chain(*(self._by_state[state].values() for state in states))
        return tuple(sorted(trials, key=attrgetter("number")))

    @property
    def older(self) -> OlderTrials:
        """The older observations that models should use now, if any."""
        if self.prior is None:
            return OlderTrials.of(None, Transfer())
        if self._older is None:
            known = self.prior.losses
            pairs = [
                (known[trial.query.configuration], trial.evaluation.loss)
                for trial in self.complete
                if trial.evaluation is not None
                and trial.query.configuration in known
                and trial.number not in self.estimated
            ]
            transfer = Transfer.of(pairs, np.array(list(known.values())))
            self._older = OlderTrials.of(self.prior, transfer)
        return self._older

    @property
    def misled(self) -> AbstractSet[Configuration]:
        """The configurations that a dropped prior chose to repeat."""
        is_dropped = self.prior is not None and self.older.transfer.is_dropped
        return frozenset(self.prior.start) if self.prior and is_dropped else frozenset()

    @property
    def asked(self) -> AbstractSet[Configuration]:
        """The configurations proposed so far."""
        return self._asked.keys()

    @property
    def pending(self) -> tuple[Trial, ...]:
        """Trials without a known outcome."""
        return self._of(*(state for state in TrialState if not state.is_told))

    @property
    def complete(self) -> tuple[Trial, ...]:
        """Trials of full queries with a loss."""
        return self._of(TrialState.COMPLETE)

    @property
    def stopped(self) -> tuple[Trial, ...]:
        """Trials of partial queries with a loss."""
        return self._of(TrialState.STOPPED)

    @property
    def failed(self) -> tuple[Trial, ...]:
        """Trials that ended without a loss."""
        return self._of(TrialState.FAILED)

    def count(self, *states: TrialState) -> int:
        """Return the number of trials in some states."""
        return sum(len(self._by_state[state]) for state in states)

    def trials_of(self, configuration: Configuration) -> tuple[Trial, ...]:
        """Return the trials of a configuration, in the order of asking."""
        return tuple(self._trials[n] for n in self._asked.get(configuration, ()))

    def best(self, n: int) -> list[Trial]:
        """Return the n best complete trials that meet all constraints, the best one first."""
        return [self._trials[int(rank[-1])] for rank in self._ranked[:n]]

    def abridged(self, n_best: int, n_last: int) -> "History":
        """Return a history of the best feasible trials, the last told ones and all pending ones."""
        best = (trial.number for trial in self.best(n_best))
        told = (TrialState.COMPLETE, TrialState.FAILED)
        last = (t.number for t in reversed(self._trials.values()) if t.state in told)
        pending = (trial.number for trial in self.pending)
        abridged = History(self.constraints)
        for number in sorted({*best, *islice(last, n_last), *pending}):
            abridged.record(self._trials[number])
        abridged.prior, abridged.estimated = self.prior, self.estimated
        abridged._older = self.older
        return abridged

    @property
    def losses(self) -> Array:
        """Losses of the complete trials, shape (n,)."""
        return np.array([t.evaluation.loss for t in self.complete if t.evaluation])

    @property
    def incumbent(self) -> Trial | None:
        """The best complete trial that meets the constraints; the earliest of equals."""
        return next(iter(self.best(1)), None)

    @property
    def partial(self) -> list[Trial]:
        """Partial evaluations that meet the constraints, the best first.

        The order is by share of the rows, folds, epochs, then loss. Configurations that failed in
        another evaluation come last.
        """
        failed = {
            t.query.configuration for t in self.failed if t.failure and not t.failure.is_unstarted
        }
        ranked = [self._trials[int(rank[-1])] for rank in self._ranked_partial]
        return sorted(ranked, key=lambda trial: trial.query.configuration in failed)

    @property
    def best_partial(self) -> Trial | None:
        """The first of `partial`."""
        return next(iter(self.partial), None)

    @property
    def nearest_infeasible(self) -> Trial | None:
        """The complete trial, or else partial trial, that violates the constraints least."""
        return self._trials[int(self._infeasible[0][-1])] if self._infeasible else None

    def violation(self, trial: Trial) -> float:
        """Return by how much a trial with a loss violates the constraints; `<= 0` if feasible."""
        return violation(self.constraints, trial.evaluation.constraints if trial.evaluation else {})


_N_COLD = 2
"""Number of first trials that predict later ones poorly: their workers were still importing."""
_LEAST_KNOWN = 3
"""Number of later trials needed to convert seconds into trials."""


def trials_affordable(budget: Budget, history: History) -> float | None:
    """Return the number of trials a budget affords in all; None if unlimited or unknown."""
    limits = []
    if budget.trials_left is not None:
        limits.append(float(len(history) + budget.trials_left))
    told = [t for t in history if t.is_told]
    costs = [t.cost_seconds for t in told if t.number >= _N_COLD]
    if budget.seconds_left is not None and len(costs) >= _LEAST_KNOWN:
        each = sum(costs) / len(costs) + budget.ask_seconds / len(told)
        if each > 0:
            n_paid = (len(told) + len(history)) / 2  # running trials are half paid, on average
            limits.append(n_paid + max(budget.seconds_left, 0.0) / each)
    return min(limits, default=None)


def imputed_losses(
    history: History, objective: Objective, rule: FailureCost
) -> tuple[list[Trial], Array]:
    """Return complete and failed trials in the order of asking, and their losses, shape (n,).

    Without a bound, the worst finished loss counts.
    """
    trials = [t for t in history if t.state in (TrialState.COMPLETE, TrialState.FAILED)]
    failed = float(max(history.losses, default=0.0))
    if rule == "bound" and np.isfinite(objective.upper):
        failed = objective.upper
    return trials, np.array([failed if t.loss is None else t.loss for t in trials])


def log_losses(losses: Array, objective: Objective) -> Array:
    """Return ln of the distance from the least possible loss, offset by 1 % of the median."""
    if not np.isfinite(objective.lower) or not len(losses):
        return losses
    distance = np.maximum(losses - objective.lower, 0.0)
    typical = float(np.median(distance)) or float(distance.max())
    return np.log(distance + 0.01 * typical) if typical > 0 else losses


_ROUNDING = 1e-12
"""Relative rounding of a sum over any number of rows."""


def is_least(losses: Array) -> NDArray[np.bool_]:
    """Return which losses, (n,) or (n, N), are the least along the first axis, ties included."""
    return losses <= losses.min(axis=0) + rounding_of(losses)


def rounding_of(losses: Array) -> Array:
    """Return the tolerance, shape () or (N,), for equal losses of n models, (n,) or (n, N)."""
    return np.asarray(_ROUNDING * np.median(np.abs(losses), axis=0))


def best_frequencies(risks: Array) -> NDArray[np.float64]:
    """Return p_h*, shape (n,): the share of bootstraps in which each model has the least risk.

    It is the posterior probability that a model is the best (Lacoste et al. 2014, equation 5, with
    bootstraps for the prior). Ties share a bootstrap equally. `risks` of n models in N bootstraps
    are finite, shape (n, N).
    """
    is_best = is_least(risks)
    return (is_best / is_best.sum(axis=0)).mean(axis=1)


def frequencies_of_few(risks: Array, most: int) -> NDArray[np.float64]:
    """Return p_h* of an ensemble of at most `most` models, 0 for all others, shape (n,).

    Similar models share their bootstraps and so have small weights. The largest weights alone would
    select models unlike any other. Members are therefore picked one by one. The first has the least
    mean risk. Each next one is most often the best among all members and itself, as in the authors'
    code (recursix/spearmint-salad, greedy.py). Weights are p_h* among the members.
    """
    if most < 1:
        raise ValueError(f"an ensemble has at least 1 model; got {most}")
    frequencies = best_frequencies(risks)
    if np.count_nonzero(frequencies) <= most:
        return frequencies
    tie, picked = rounding_of(risks), [int(np.argmin(risks.mean(axis=1)))]
    while len(picked) < most:
        least = risks[picked].min(axis=0)
        n_best = (risks[picked] <= least + tie).sum(axis=0)
        wins, ties = risks < least - tie, np.abs(risks - least) <= tie
        own = (wins + ties / (n_best + 1)).mean(axis=1)
        own[picked] = -1.0
        picked.append(int(np.argmax(own)))
    kept = np.zeros(len(risks))
    kept[picked] = best_frequencies(risks[picked])
    return kept
