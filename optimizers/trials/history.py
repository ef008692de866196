"""All trials of a study in the form needed by models, and the number of affordable trials."""

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
from prefect_tune.optimizers.space.vectors import ROUNDING, Array
from prefect_tune.optimizers.trials.earlier import OlderTrials, Prior, Transfer
from prefect_tune.optimizers.trials.objective import Constraint, FailureCost, Objective, violation
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial

Rank = tuple[float, ...]
"""Sort key of a trial, which ends with the trial's number. The best trial has the smallest key."""


class History:
    """All trials by number.

    A trial is recorded when it is proposed, and later states of the trial replace earlier states.
    Recording a state, and reading the incumbent or the known configurations, takes constant time.
    Other properties take time proportional to the number of trials.

    Attributes:
        constraints: Constraints of the study.
        prior: Observations of earlier runs, set before the first ask; None without earlier runs.
        estimated: The trials whose losses are estimated, by trial number. Estimated losses are not
            compared with losses of earlier runs.
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
        """Return a trial by number; None if no such trial was proposed."""
        return self._trials.get(number)

    def record(self, trial: Trial) -> None:
        """Add a trial, or replace the earlier state of a trial."""
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
        """The observations of earlier runs for models, with their current weights."""
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
        """The configurations that were re-evaluated because of a prior that was later dropped."""
        is_dropped = self.prior is not None and self.older.transfer.is_dropped
        return frozenset(self.prior.start) if self.prior and is_dropped else frozenset()

    @property
    def asked(self) -> AbstractSet[Configuration]:
        """The configurations proposed so far."""
        return self._asked.keys()

    @property
    def pending(self) -> tuple[Trial, ...]:
        """Trials that have not ended, by number."""
        return self._of(*(state for state in TrialState if not state.is_told))

    @property
    def complete(self) -> tuple[Trial, ...]:
        """Full evaluations with a loss, by number."""
        return self._of(TrialState.COMPLETE)

    @property
    def stopped(self) -> tuple[Trial, ...]:
        """Partial evaluations with a loss, by number."""
        return self._of(TrialState.STOPPED)

    @property
    def failed(self) -> tuple[Trial, ...]:
        """Trials that failed, by number."""
        return self._of(TrialState.FAILED)

    def count(self, *states: TrialState) -> int:
        """Return the number of trials in any of the given states."""
        return sum(len(self._by_state[state]) for state in states)

    def trials_of(self, configuration: Configuration) -> tuple[Trial, ...]:
        """Return the trials of a configuration, by number."""
        return tuple(self._trials[n] for n in self._asked.get(configuration, ()))

    def best(self, n: int) -> list[Trial]:
        """Return the n best full trials that meet all constraints, best first."""
        return [self._trials[int(rank[-1])] for rank in self._ranked[:n]]

    def abridged(self, n_best: int, n_last: int) -> "History":
        """Return a history of the n_best best, the n_last newest and all pending trials.

        The best trials meet all constraints. The newest trials are full or failed.
        """
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
        """Losses of the full trials, shape (n,)."""
        return np.array([t.evaluation.loss for t in self.complete if t.evaluation])

    @property
    def incumbent(self) -> Trial | None:
        """The best full trial that meets the constraints; the first trial wins ties.

        The incumbent is None before any full trial meets the constraints.
        """
        return next(iter(self.best(1)), None)

    @property
    def loss_to_improve(self) -> float:
        """The incumbent's loss, or the highest loss of the full trials before any is feasible."""
        loss = self.incumbent.loss if self.incumbent else None
        return float(self.losses.max()) if loss is None else loss

    @property
    def partial(self) -> list[Trial]:
        """Partial evaluations that meet the constraints, best first.

        Trials are ordered by fraction of the rows, number of folds, number of epochs, and loss.
        Configurations that failed in another evaluation come last.
        """
        failed = {
            t.query.configuration for t in self.failed if t.failure and not t.failure.is_unstarted
        }
        ranked = [self._trials[int(rank[-1])] for rank in self._ranked_partial]
        return sorted(ranked, key=lambda trial: trial.query.configuration in failed)

    @property
    def best_partial(self) -> Trial | None:
        """The best partial evaluation (see `partial`); None without partial evaluations."""
        return next(iter(self.partial), None)

    @property
    def nearest_infeasible(self) -> Trial | None:
        """The infeasible trial with the smallest constraint violation.

        Complete trials are preferred.
        """
        return self._trials[int(self._infeasible[0][-1])] if self._infeasible else None

    def violation(self, trial: Trial) -> float:
        """Return the constraint violation of a trial with a loss; at most 0 if feasible."""
        return violation(self.constraints, trial.evaluation.constraints if trial.evaluation else {})


LEAST_KNOWN = 3
"""Number of trials needed to estimate a mean or a deviation."""


def trials_affordable(budget: Budget, history: History) -> float | None:
    """Return the total number of trials that a budget affords; None if unlimited or unknown.

    The first trial of each worker is ignored, because workers are still importing libraries.
    """
    limits = []
    if budget.trials_left is not None:
        limits.append(float(len(history) + budget.trials_left))
    told = [t for t in history if t.is_told]
    costs = [t.cost_seconds for t in told if t.number >= budget.n_workers]
    if budget.seconds_left is not None and len(costs) >= LEAST_KNOWN:
        each = sum(costs) / len(costs) + budget.ask_seconds / len(told)
        if each > 0:
            n_paid = (len(told) + len(history)) / 2  # on average, running trials are half finished
            limits.append(n_paid + max(budget.seconds_left, 0.0) / each)
    return min(limits, default=None)


def imputed_losses(
    history: History, objective: Objective, rule: FailureCost
) -> tuple[list[Trial], Array]:
    """Return the n complete and failed trials by number, and their losses, shape (n,).

    Failed trials get the loss given by `rule`, or the worst loss if the metric has no upper bound.
    """
    trials = [t for t in history if t.state in (TrialState.COMPLETE, TrialState.FAILED)]
    failed = float(max(history.losses, default=0.0))
    if rule == "bound" and np.isfinite(objective.upper):
        failed = objective.upper
    return trials, np.array([failed if t.loss is None else t.loss for t in trials])


def excesses(history: History, trials: Sequence[Trial]) -> Array:
    """Return (g - eps) / eps of trials and constraints, shape (n, M); at most 0 if a bound is met.

    If the bound eps is 0, the divisor is the median of the positive quantities. Undefined
    quantities count as the largest excess, and at least 1. Failed trials have the median excess.
    """
    values = np.zeros((len(trials), len(history.constraints)))
    measured = [t.evaluation.constraints if t.evaluation else {} for t in trials]
    has_failed = np.array([t.evaluation is None for t in trials], dtype=np.bool_)
    for column, constraint in zip(values.T, history.constraints, strict=True):
        column += [constraint.excess(quantities) for quantities in measured]
        known = column[np.isfinite(column)]
        unit = np.median(known[known > 0]) if not constraint.bound and (known > 0).any() else 1.0
        column[np.isinf(column)] = known.max(initial=unit)
        column[has_failed] = np.median(known) if len(known) else 0.0
        column[:] /= unit
    return values


def log_scaled(excess: Array) -> Array:
    """Return ln(1 + excess), which is odd: a bound that is met by half has -ln(1.5)."""
    return np.copysign(np.log1p(np.abs(excess)), excess)


def worst_excess(history: History, trials: Sequence[Trial]) -> Array:
    """Return the largest log excess of trials over all constraints, shape (n,); 0 without any."""
    if not history.constraints:
        return np.zeros(len(trials))
    return log_scaled(excesses(history, trials)).max(axis=1)


def relative_losses(losses: Array, objective: Objective, *, is_log: bool) -> Array:
    """Return n losses, n at least 1, on a scale without unit, shape (n,).

    A loss becomes its distance from the lowest possible loss, divided by the median distance. With
    `is_log`, the logarithm of this ratio + 0.01 is returned. If the metric has no lower bound,
    distances are from the lowest of the losses, and never in logarithms.
    """
    is_bounded = bool(np.isfinite(objective.lower))
    distance = np.maximum(losses - (objective.lower if is_bounded else losses.min()), 0.0)
    ratio = distance / (float(np.median(distance)) or float(distance.max()) or 1.0)
    return np.log(ratio + 0.01) if is_log and is_bounded else ratio


def is_least(losses: Array) -> NDArray[np.bool_]:
    """Return whether losses are the lowest along the first axis, including ties.

    The losses and the result have shape (n,) or (n, N).
    """
    return losses <= losses.min(axis=0) + rounding_of(losses)


def rounding_of(losses: Array) -> Array:
    """Return the tolerance within which losses of n models count as equal.

    For losses of shape (n,) or (n, N), the tolerance has shape () or (N,).
    """
    return np.asarray(ROUNDING * np.median(np.abs(losses), axis=0))


def best_frequencies(risks: Array) -> NDArray[np.float64]:
    """Return p_h*, the fraction of bootstraps in which each model has the lowest risk, shape (n,).

    p_h* is the posterior probability that a model is the best (Lacoste et al. 2014, equation 5,
    with bootstraps for the prior). Models tied in a bootstrap share it equally. `risks` are the
    finite risks of n models in N bootstraps, shape (n, N).
    """
    is_best = is_least(risks)
    return (is_best / is_best.sum(axis=0)).mean(axis=1)


def frequencies_of_few(risks: Array, most: int) -> NDArray[np.float64]:
    """Return p_h* among at most `most` chosen models, and 0 for all others, shape (n,).

    Similar models split the bootstraps that they win, so a choice by p_h* among all models would
    favor unusual models. Members are therefore chosen one by one. The first member has the lowest
    mean risk. Each further member most often beats all members chosen so far, as in the authors'
    code (recursix/spearmint-salad, greedy.py). Raises ValueError if `most` is less than 1.
    """
    if most < 1:
        raise ValueError(f"an ensemble needs at least 1 model; got {most}")
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
