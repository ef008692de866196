"""Racing around any method: configurations clearly behind on part of an evaluation are stopped.

A configuration first runs one fold. With many rows, it runs part of that fold before: a partial
run. After each rung, its loss is compared with the incumbent's on the same rung, since hard rows
are hard for both. Finished configurations show how much of a difference is chance.

If a configuration is clearly behind, it stays stopped, and the method is told a paired estimate of
its loss. If not, it runs all folds (the first from the cache), and the method is told all rungs
together. Until then, with many rows, the method's history has the present estimate. The method
itself sees one trial per configuration and no folds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Reason, two_digits
from prefect_tune.optimizers.optimizer import KNOWN, NotYet, Optimizer
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.sampling import SpaceExhausted
from prefect_tune.optimizers.surrogates.costs import LIKELY
from prefect_tune.optimizers.trials.earlier import Prior
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import MANY_ROWS, Bootstraps, Objective
from prefect_tune.optimizers.trials.outcome import Evaluation, Failure, StepCost, TrialState
from prefect_tune.optimizers.trials.trial import Trial

_PARTIAL_ROWS = 10_000
"""Fewest rows of a partial run, as in FLAML 2.7."""
_LEAST_ROWS = 1_000
"""Fewest rows of a partial run if more would not end in time."""
_PARTIAL_RAREST = 100
"""Fewest rows of the rarest class in a partial run, if the data has so many."""
_RUNG = 4
"""Factor between the rows of successive partial runs, the usual factor of ASHA."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A rung: the part of an evaluation that one trial runs; `folds` is None for all."""

    subset: float = 1.0
    folds: int | None = None
    held_out: float = 1.0

    @property
    def extent(self) -> tuple[float, float, float]:
        """Sort key by the amount of work."""
        return self.subset, inf if self.folds is None else self.folds, self.held_out

    def of(self, whole: Query) -> Query:
        """Return the query of this rung of a whole evaluation."""
        return replace(whole, subset=self.subset, folds=self.folds, held_out=self.held_out)

    def fits(self, query: Query) -> bool:
        """Return whether a query has exactly this fidelity."""
        return (query.subset, query.folds) == (self.subset, self.folds)


def is_large(objective: Objective) -> bool:
    """Return whether the rows are so many that a run on part of them comes first."""
    return _share(objective) < 1


def rungs_of(objective: Objective) -> tuple[Rung, ...]:
    """Return the rungs of a configuration, the whole evaluation last.

    The first rung is one fold. With more than 20,000 training rows, runs on parts of that fold come
    before. The first partial run has the smallest share 2^-k of the rows with 10,000 rows and 100
    of the rarest class. Each next one has four times as many, up to a quarter. The first partial
    run is judged on the smallest 2^-k of the held-out rows by the same rule; each next one on four
    times as many. A `ValueError` is raised if no rung precedes the whole evaluation.
    """
    is_split = objective.n_folds is None or objective.n_folds > 1
    folds = (Rung(folds=1),) if is_split else ()
    share, judged = _share(objective), _held_out_share(objective)
    runs: list[Rung] = []
    while share < 1 and (not runs or share <= 1 / _RUNG):
        runs.append(Rung(share, 1 if is_split else None, judged))
        share, judged = _RUNG * share, min(_RUNG * judged, 1.0)
    if not runs and not folds:
        raise ValueError(
            f"a race needs 2 folds or more, or more than {MANY_ROWS:,} training rows; there is "
            f"{objective.n_folds} fold"
        )
    return (*runs, *folds, Rung())


def _share(objective: Objective) -> float:
    n_rows = objective.n_rows or 0
    if n_rows <= MANY_ROWS:
        return 1.0
    is_known = objective.n_classes and objective.n_rarest is not None
    return _halved(n_rows, (objective.n_rarest or 0) if is_known else inf)


def _halved(n_rows: int, n_rarest: float) -> float:
    share = 1.0
    while share * n_rows / 2 >= _PARTIAL_ROWS and share * n_rarest / 2 >= _PARTIAL_RAREST:
        share /= 2
    return share


def smaller_shares(objective: Objective, share: float) -> list[float]:
    """Return a share, half of it, and so on down to 1,000 rows; the share itself always counts."""
    shares = [share]
    while shares[-1] / 2 * (objective.n_rows or 0) >= _LEAST_ROWS:
        shares.append(shares[-1] / 2)
    return shares


def _held_out_share(objective: Objective) -> float:
    n_rows = objective.n_held_out or 0
    rarest = inf
    if objective.n_classes and objective.n_rarest and objective.n_rows:
        rarest = objective.n_rarest * n_rows / objective.n_rows
    return _halved(n_rows, rarest)


LEAST_COMPARED = 3
"""Number of other configurations that must have run all folds to trust the spread."""


def is_behind(
    first: Evaluation, incumbent: Evaluation, history: History, sign: float = 1.0
) -> bool:
    """Return whether a configuration is worse on its first fold by more than a margin.

    Before the margin is known, it must be worse than the incumbent's worst fold (Bergman, Purucker
    and Hutter 2024, "Don't Waste Your Time: Early Stopping Cross-Validation", arXiv 2405.03389: the
    forgiving rule, after one fold). With a sign of -1, test whether it is better.
    """
    known, loss = margin(incumbent, history), sign * first.fold_losses[0]
    if known is None:
        return loss > max(sign * other for other in incumbent.fold_losses)
    return loss - sign * incumbent.fold_losses[0] > known


def margin(incumbent: Evaluation, history: History) -> float | None:
    """Return the difference on one fold that chance may explain; None if too few are known.

    The margin is s sqrt(1 - 1/K). The spread s of a configuration's differences to the incumbent is
    over K folds, pooled over all full configurations.
    """
    n_folds = len(incumbent.fold_losses)
    others = [
        trial.evaluation.fold_losses
        for trial in history.complete
        if trial.evaluation is not None
        and trial.evaluation is not incumbent
        and len(trial.evaluation.fold_losses) == n_folds
    ]
    if n_folds < 2 or len(others) < LEAST_COMPARED:
        return None
    differences = np.array(others) - np.array(incumbent.fold_losses)
    spread = sqrt(float(np.mean(np.var(differences, axis=1, ddof=1))))
    return spread * sqrt(1 - 1 / n_folds)


def is_behind_on_part(
    difference: float, incumbent: Evaluation, known: Sequence[tuple[float, float]]
) -> bool:
    """Return whether a loss is worse on a part of the rows by more than a margin.

    `difference` is the loss less the incumbent's. The incumbent is the best configuration, or the
    one that ran furthest. The margin is the root mean square error of a partial run, over the
    `known` differences of others on the part and in all, so it includes the effect of more rows.
    Before three are known, it is the difference between the incumbent's worst and best fold. With
    one fold, no loss is behind then.
    """
    if len(known) >= LEAST_COMPARED:
        runs, wholes = np.array(known).T
        return difference > sqrt(float(np.mean((runs - wholes) ** 2)))
    if len(incumbent.fold_losses) < 2:
        return False
    return difference > max(incumbent.fold_losses) - min(incumbent.fold_losses)


def estimated(
    rung: Evaluation, incumbent: Evaluation, objective: Objective, difference: float
) -> Evaluation:
    """Return the evaluation of a configuration that did not run in full.

    Each fold is assumed to differ from the incumbent's by `difference`, within the bounds of the
    metric. Seconds and steps are as spent.
    """
    losses = tuple(
        min(max(loss + difference, objective.lower), objective.upper)
        for loss in incumbent.fold_losses
    )
    return replace(rung, loss=sum(losses) / len(losses), fold_losses=losses, risks=())


def joined(first: Evaluation, whole: Evaluation) -> Evaluation:
    """Return the evaluation of all folds as if the first fold had not been run before."""
    return replace(
        whole,
        cost_seconds=first.cost_seconds + whole.cost_seconds,
        steps=_made_steps(first.steps, whole.steps),
        resumed_from=0,
    )


def failed_later(first: Evaluation, failure: Failure) -> Failure:
    """Return the failure of a configuration after its first fold, with the cost of that fold."""
    told = {(cost.step, cost.fold) for cost in failure.steps}
    unsaid = [cost for cost in first.steps if (cost.step, cost.fold) not in told]
    return replace(
        failure,
        cost_seconds=first.cost_seconds + failure.cost_seconds,
        steps=(*unsaid, *_made_steps(first.steps, failure.steps)),
    )


def _made_steps(first: Sequence[StepCost], later: Sequence[StepCost]) -> tuple[StepCost, ...]:
    """Later steps, with hits of the first rung's results replaced by the steps that made them."""
    made = {(cost.step, cost.fold): cost for cost in first}
    return tuple(made.get((cost.step, cost.fold), cost) for cost in later)


_GATHERED, _GATHERING_SHARE = 8, 0.2
"""Number of configurations that run on part of the rows before the best one is resumed. It is
reduced to as many as fit into this share of the seconds."""
_LEADS_FROM = 1 / 8
"""Least share of the rows with which a partial trial that is clearly ahead may lead."""
_LEADS_BY_GAIN, _LEADS_BY_SHARE = 0.5, 0.1
"""A run on fewer rows leads if it undercuts the loss of the best full trial by a tenth, and by half
of what that trial gained from more rows."""


class Racing(Optimizer):
    """A method, `inner`, whose configurations race: they run in full if they keep up on a part.

    The history has a trial for each rung. The history of `inner` has one trial for each
    configuration, pending until its last rung is known. Raises `ValueError` if the method cannot be
    raced, or there is only one fold and few rows.
    """

    def __init__(self, inner: Optimizer) -> None:
        if inner.method.fidelities:
            asked_for = ", ".join(sorted(inner.method.fidelities))
            raise ValueError(
                f"method {inner.name!r} cannot be raced: it chooses itself how much to run "
                f"({asked_for})"
            )
        self._rungs = rungs_of(inner.objective)
        self.method = inner.method  # type: ignore[misc]  # its declaration is the inner one
        super().__init__(inner.space, inner.seed, inner.objective)
        self.options = inner.options
        self.inner = inner
        inner.share_costs(self.costs)
        inner.has_partial_runs = self._has_partial_runs
        self._inner_of: dict[int, int] = {}
        self._ran: dict[int, list[int]] = {}
        self._losses: dict[Rung, dict[int, float]] = {}
        self._smaller: dict[int, float] = {}
        self._open: set[int] = set()
        self._spent_seconds = [0.0, 0.0]  # on first partial runs, and on more rows
        self._led_by: int | None = None

    @property
    def decisions(self) -> dict[str, Any]:
        """The method's decisions, and `race`: numbers of `begun` and `stopped` configurations."""
        ended = self._ran.keys() - self._open
        partial = [i for i in ended if not self._last(i).query.is_full]
        stopped = [i for i in partial if self.inner.history[i].failure is None]
        race = {"begun": len(self._ran), "stopped": len(stopped)}
        return {**self.inner.decisions, "race": race}

    @property
    def notes(self) -> Sequence[str]:
        """The method's notes."""
        return self.inner.notes

    @property
    def bootstraps(self) -> Bootstraps | None:
        """The method's bootstraps."""
        return self.inner.bootstraps

    @property
    def resumes_configurations(self) -> bool:
        """Always true: configurations that keep up are resumed when no more may be started."""
        return True

    @property
    def incumbent(self) -> Trial | None:
        """The trial of the configuration that the method would choose, if that ran all folds.

        A partial trial clearly ahead of it comes first. If no configuration ran all folds, the best
        partial trial leads; a run on fewer rows must be better by a tenth of the loss.
        """
        chosen = self.inner.incumbent
        if chosen is None or chosen == self.inner.history.incumbent:
            return self._ahead() or self.history.incumbent or self._leading_partial_run()
        return self._whole(chosen.number) or super().incumbent

    def _leading_partial_run(self) -> Trial | None:
        if not self._has_partial_runs or self.history.best_partial is None:
            return self.history.best_partial
        found = (self._ended(i) for i in self._ran)
        feasible = [t for t in found if t is not None and self.history.violation(t) <= 0]
        leading: Trial | None = None
        for trial in sorted(feasible, key=lambda t: (-t.query.subset, _loss(t), t.number)):
            if leading is None or _loss(leading) - _loss(trial) > _tenth(leading):
                leading = trial
        return leading or self.history.best_partial

    def _ahead(self) -> Trial | None:
        """Partial trial clearly better than the best full one, if any.

        A run on few rows must be far better, because models that learn fast need not be the best.
        It never leads under constraints, since measured quantities may grow with the rows.
        """
        best = self.history.incumbent
        if best is None:
            return None
        partial = [t for i in self._open if (t := self._ended(i)) and not t.query.is_full]
        ahead = [t for t in partial if self.history.violation(t) <= 0 and self._is_ahead(t, best)]
        key = lambda t: (-self._number_of(t.query), _loss(t), t.number)  # noqa: E731
        return min(ahead, key=key, default=None)

    def _ended(self, i: int) -> Trial | None:
        """Last rung of a configuration that has a loss; None if any rung has failed."""
        trials = [self.history[number] for number in self._ran[i]]
        if any(t.failure is not None and not t.failure.is_unstarted for t in trials):
            return None
        return next((t for t in reversed(trials) if t.evaluation is not None), None)

    @property
    def weights(self) -> Mapping[int, float]:
        """The method's weights, distributed over the configurations that ran all folds."""
        chosen, weights = self.inner.incumbent, self.inner.weights
        if chosen is None or weights == {chosen.number: 1.0}:
            return super().weights
        wholes = [(self._whole(i), weight) for i, weight in weights.items()]
        known = {whole.number: weight for whole, weight in wholes if whole is not None}
        total = sum(known.values())
        return {n: weight / total for n, weight in known.items()} if total else super().weights

    def begin_with(self, start: Iterable[Configuration], name: str = KNOWN) -> None:
        """Race these configurations first, in this order."""
        self.inner.begin_with(start, name)

    def begin_after(self, prior: Prior) -> None:
        """Evaluate `prior.start` first, on all folds at once unless the rows are many."""
        self.inner.begin_after(prior)

    def restore(self, number: int, query: Query, memo: Mapping[str, Any] | None) -> None:
        """Record an ask of an earlier process; a first rung was also an ask of the inner method."""
        if number == self._n_asks and self._going_on(query) is None:
            self.inner.restore(len(self.inner.history), self._rungs[-1].of(query), None)
        super().restore(number, query, memo)

    def retry(self, number: int) -> None:
        """Count a failed rung, and so its configuration, as pending again."""
        super().retry(number)
        i = self._inner_of[number]
        if self._smaller.pop(i, None) is None and self.inner.history[i].failure is not None:
            self.inner.retry(i)
            self._open.add(i)

    def _propose(self, budget: Budget, rng: Generator) -> Query:  # noqa: ARG002
        """Resume a configuration that keeps up, or start the next one."""
        for i, share in self._smaller.items():
            return self._smaller_run(i, share)
        waiting = self._waiting()
        ending = (i for i in waiting if self._keeps_up(i) and self._would_end(i, budget))
        is_turn = not self._gathers(budget) and not self._owes_first_runs(budget)
        if is_turn and (best := next(ending, None)) is not None:
            return self._next_rung(best)
        try:
            query = self._begun(budget)
        except (SpaceExhausted, NotYet):
            if (best := next(ending, waiting[0] if waiting else None)) is not None:
                return self._next_rung(best)
            if self.history.pending:  # one of them may keep up
                raise NotYet from None
            raise
        self.memo, self._because = self.inner.memo, self.inner.reason
        return query if self._is_whole_at_once(query) else self._first_rung(query, budget)

    def _begun(self, budget: Budget) -> Query:
        if budget.trials_left == 0:
            raise SpaceExhausted("no configuration is left to resume")
        n_told = sum(trial.is_told for trial in self.inner.history)
        return self.inner.ask(replace(budget, trials_spent=n_told))

    def _next_rung(self, i: int) -> Query:
        ran, rest = self._last(i).query, self._following(self._last(i).query)
        if rest.subset < 1:
            why = f"kept up on {ran.subset:.2g} of the rows, so {rest.subset:.2g} of them follow"
        elif ran.subset < 1:
            follows = "the fold runs on all rows" if rest.folds else "all rows follow"
            why = f"kept up on part of the rows, so {follows}"
        else:
            why = "kept up on its first fold, so the other folds follow"
        self._because = Reason("race", why)
        return rest.of(self.inner.history[i].query)

    def _following(self, ran: Query) -> Rung:
        """Rung after this one; after a smaller run, the first of the usual rungs."""
        k = self._number_of(ran)
        return self._rungs[k if ran.subset < self._rungs[k].subset else k + 1]

    def _gathers(self, budget: Budget) -> bool:
        """Whether more partial runs come before the best one is resumed."""
        seconds = replace(budget, trials_left=None)  # a partial run is a small part of a trial
        if not self._has_partial_runs or seconds.share_left <= 1 - _GATHERING_SHARE:
            return False
        lasts = [self._last(i) for i in self._ran]
        is_alone = all(self._number_of(trial.query) == 0 for trial in lasts)
        return is_alone and sum(trial.is_told for trial in lasts) < _GATHERED

    def _owes_first_runs(self, budget: Budget) -> bool:
        """Whether later rungs, pending ones included, have taken more seconds than first runs."""
        if not self._has_partial_runs or not self._reads_costs(budget):
            return False
        under_way = (trial for trial in self.history.pending if self._goes_on(trial))
        more = sum(self.costs.seconds(trial.query) for trial in under_way)
        return self._spent_seconds[1] + more > self._spent_seconds[0]

    def _goes_on(self, trial: Trial) -> bool:
        before = (n for n in self._ran[self._inner_of[trial.number]] if n < trial.number)
        return any(self.history[n].evaluation is not None for n in before)

    def _first_rung(self, whole: Query, budget: Budget) -> Query:
        """First rung of an evaluation, on fewer rows if more would not end in time."""
        first = self._rungs[0].of(whole)
        if not self._has_partial_runs or not self._reads_costs(budget):
            return first
        if not self.costs.is_expected(whole.configuration):
            return first
        allowed = self.costs.allowed_seconds(first, budget)
        shares = smaller_shares(self.objective, first.subset)
        share = next((s for s in shares if self._is_likely(first, s, allowed)), shares[-1])
        if share == first.subset:
            return first
        rows, seconds = self.costs.rows(first), self.costs.seconds(first)
        why = f"on fewer rows, as {rows:,.0f} would take {two_digits(seconds)} s"
        before = self._because or Reason(self.name)
        self._because = Reason(before.phase, f"{before.text}; {why}" if before.text else why)
        return replace(first, subset=share)

    def _is_likely(self, run: Query, share: float, allowed: float) -> bool:
        """Whether a run on another share of the rows is likely to end in time."""
        return self.costs.seconds(replace(run, subset=share), LIKELY) <= allowed

    def _smaller_run(self, i: int, share: float) -> Query:
        last = self._last(i)
        failure = last.failure
        assert failure is not None  # noqa: S101 - it was not started
        assert failure.pilot is not None  # noqa: S101 - which showed that
        rows, seconds = self.costs.rows(last.query), two_digits(failure.pilot.seconds)
        why = f"again on fewer rows, as {rows:,.0f} would take {seconds} s"
        self._because = Reason("race", why)
        return replace(last.query, subset=share)

    def _would_end(self, i: int, budget: Budget) -> bool:
        if not self._reads_costs(budget):
            return True
        last = self._last(i).query
        follows = self._following(last).of(self.inner.history[i].query)
        done = last.folds or 0 if last.subset == follows.subset else 0
        seconds = self.costs.seconds(follows, LIKELY, folds_done=done)
        return seconds <= self.costs.allowed_seconds(follows, budget, is_first=False)

    def _reads_costs(self, budget: Budget) -> bool:
        """Whether predicted seconds decide; if not, measured seconds do not influence asks."""
        return budget.seconds_left is not None or self.method.draws_on_cost

    @property
    def _has_partial_runs(self) -> bool:
        return self._rungs[0].subset < 1

    def _is_whole_at_once(self, query: Query) -> bool:
        """Whether a new configuration runs in full, unless the rows are many.

        The first one has no other to be compared with. One that an earlier run chose to repeat is
        a pair only on all folds.
        """
        prior = self.inner.history.prior
        is_repeated = prior is not None and query.configuration in prior.start
        return not self._has_partial_runs and (not self._ran or is_repeated)

    def _restore(self, memo: Mapping[str, Any]) -> None:
        super()._restore(memo)
        self.inner._restore(memo)  # noqa: SLF001 - its own, whichever ask was the last

    def _register(self, query: Query) -> None:
        i = self._going_on(query)
        if i is None:
            i = len(self.inner.history) - 1
            self._ran[i] = []
        elif self._smaller.pop(i, None) is None and i not in self._open:
            # A constraint, and so the incumbent, has changed since then.
            self.inner.history.record(self.inner.history[i].waiting())
        self._open.add(i)
        self._ran[i].append(self._n_asks)
        self._inner_of[self._n_asks] = i
        super()._register(query)

    def _going_on(self, query: Query) -> int | None:
        """Number, in the method, of a configuration that is resumed; None for a new one."""
        if query.is_full and self._is_whole_at_once(query):
            return None
        k, lasts = self._number_of(query), {i: self._last(i) for i in self._ran}
        same = [i for i, t in lasts.items() if t.query.configuration == query.configuration]
        again = (i for i in same if i in self._smaller)
        if k == 0 and (i := next(again, None)) is not None:
            return i
        found = [
            i
            for i in same
            if lasts[i].state == TrialState.STOPPED and self._following(lasts[i].query).fits(query)
        ]
        if not found and k > 0:
            raise ValueError(
                f"trial {self._n_asks} resumes a configuration whose previous rung is missing"
            )
        return min(
            found,
            key=lambda i: (i not in self._open, -self._number_of(lasts[i].query), i),
            default=None,
        )

    def _number_of(self, query: Query) -> int:
        """Number of a query's rung; `ValueError` if it matches no rung."""
        for k, rung in enumerate(self._rungs):
            if rung.fits(query):
                return k
        first = self._rungs[0]
        if first.subset < 1 and query.subset <= first.subset and query.folds == first.folds:
            return 0
        raise ValueError(
            f"trial {self._n_asks} is of {query.folds or 'all'} folds and a share of "
            f"{query.subset:g} of the rows, which is no rung of this race"
        )

    def _observe(self, trial: Trial) -> None:
        i = self._inner_of[trial.number]
        self._spent_seconds[self._goes_on(trial)] += trial.cost_seconds
        if trial.loss is not None:
            rung = Rung(trial.query.subset, trial.query.folds, trial.query.held_out)
            self._losses.setdefault(rung, {})[i] = trial.loss
        last, counts = self._last(i), trial.loss is not None
        is_last = last.number == trial.number
        if not is_last and self._number_of(last.query) == 0 and (counts or last.failure):
            # This rung was rerun after a smaller partial run had replaced it.
            self._ran[i] = [*(n for n in self._ran[i] if n != trial.number), trial.number]
            is_last = True
        if is_last and (share := self._share_instead(trial)) is not None:
            self._smaller[i] = share
        elif is_last and (trial.failure or trial.query.is_full):
            before = self._before(i)
            self.inner.history.estimated.discard(i)
            if trial.failure is not None:
                self._conclude(i, failed_later(before, trial.failure) if before else trial.failure)
            else:
                seen = _evaluation(trial)
                self._conclude(i, joined(before, seen) if before else seen)
        self._stop_behind()

    def _share_instead(self, trial: Trial) -> float | None:
        """Smaller share to run on, if a pilot showed that this one would not end in time."""
        failure, query = trial.failure, trial.query
        if failure is None or failure.pilot is None or not failure.is_unstarted:
            return None
        if not self._has_partial_runs or self._number_of(query) > 0:
            return None
        allowed, shares = failure.pilot.limit_seconds, smaller_shares(self.objective, query.subset)
        return next((s for s in shares[1:] if self._is_likely(query, s, allowed)), None)

    def _before(self, i: int) -> Evaluation | None:
        """All rungs before the last one together; None if the last is the first."""
        so_far: Evaluation | None = None
        for number in self._ran[i][:-1]:
            trial = self.history[number]
            if trial.evaluation is None:  # it was not started
                continue
            seen = trial.evaluation
            if trial.query.subset < 1:  # later rungs cannot reuse their steps
                seen = replace(seen, steps=())
            so_far = joined(so_far, seen) if so_far else seen
        return so_far

    def _stop_behind(self) -> None:
        """Tell the method about configurations that are clearly behind and stay stopped.

        Each outcome may change the incumbent, so all are checked. With many rows, the method's
        history also has the estimates of all others, by the present incumbent.
        """
        incumbent, inner = self.history.incumbent, self.inner.history
        leads = None if incumbent is None else incumbent.number
        is_led_by_other, self._led_by = leads != self._led_by, leads
        for i in self._waiting():
            is_behind, seen = False, None
            if incumbent is not None:
                is_behind, seen = self._is_behind(i, incumbent), self._estimated(i, incumbent)
            if is_behind and seen is not None:
                inner.estimated.add(i)
                self._conclude(i, seen)
            elif self._has_partial_runs and (is_led_by_other or not inner[i].is_told):
                inner.estimated.add(i)
                inner.record(inner[i].completed(seen or self._as_on_all_rows(i)))

    def _conclude(self, i: int, outcome: Evaluation | Failure) -> None:
        """Tell the method the outcome of a configuration, in place of any estimate."""
        asked = replace(self.inner.history[i].waiting(), attempts=self._last(i).attempts)
        self.inner.history.record(asked)
        if isinstance(outcome, Failure):
            self.inner.tell(asked.failed(outcome))
        else:
            self.inner.tell(asked.completed(outcome))
        self._open.discard(i)

    def _estimated(self, i: int, incumbent: Trial) -> Evaluation | None:
        """Paired estimate of a configuration; None without a common partial run."""
        last, best = self._last(i), _evaluation(incumbent)
        if last.query.subset == 1:
            difference = _evaluation(last).fold_losses[0] - best.fold_losses[0]
        elif (run := self._shared_run(i, incumbent)) is not None:
            losses = self._losses[run]
            difference = losses[i] - losses[self._inner_of[incumbent.number]]
        else:
            return None
        return estimated(self._as_on_all_rows(i), best, self.objective, difference)

    def _as_on_all_rows(self, i: int) -> Evaluation:
        """All rungs of a configuration together, with steps as slow as on all rows."""
        last, before = self._last(i), self._before(i)
        seen = _evaluation(last)
        growth = {cost.step: self.costs.growth(last.query, cost.step) for cost in seen.steps}
        steps = (replace(cost, seconds=growth[cost.step] * cost.seconds) for cost in seen.steps)
        seen = replace(seen, steps=tuple(steps))
        return joined(before, seen) if before else seen

    def _keeps_up(self, i: int) -> bool:
        """Whether a configuration is not clearly behind the best configuration on the most rows."""
        if self.history.incumbent is not None or not self._has_partial_runs:
            return True
        return not self._is_behind(i, self._last(self._waiting()[0]))

    def _is_behind(self, i: int, best: Trial) -> bool:
        if self._last(i).query.subset == 1:
            return is_behind(_evaluation(self._last(i)), _evaluation(best), self.history)
        return self._is_behind_on_part(i, best, 1.0)

    def _is_ahead(self, run: Trial, best: Trial) -> bool:
        i = self._inner_of[run.number]
        if run.query.subset == 1:
            if not self._has_partial_runs:
                return _evaluation(best).fold_losses[0] - _loss(run) > _tenth(best)
            return is_behind(_evaluation(run), _evaluation(best), self.history, -1.0)
        if run.query.subset >= _LEADS_FROM:
            return self._is_behind_on_part(i, best, -1.0)
        return not self.objective.constraints and self._is_far_ahead(run, best)

    def _is_far_ahead(self, run: Trial, best: Trial) -> bool:
        """Whether a run, on the same rows if possible, is far better than the best trial."""
        i, j = (self._inner_of[trial.number] for trial in (run, best))
        reached = _evaluation(best).fold_losses[0]
        runs = (losses[j] for s, losses in self._losses.items() if s.subset < 1 and j in losses)
        gain = max(runs, default=reached) - reached
        better = reached - _loss(run)
        if (shared := self._shared_run(i, best)) is not None:
            losses = self._losses[shared]
            better = losses[j] - losses[i] - max(gain, 0.0)
        return better > max(_LEADS_BY_GAIN * abs(gain), _tenth(best))

    def _is_behind_on_part(self, i: int, best: Trial, sign: float) -> bool:
        if (run := self._shared_run(i, best)) is None:
            return False
        losses, j = self._losses[run], self._inner_of[best.number]
        difference = sign * (losses[i] - losses[j])
        return is_behind_on_part(difference, _evaluation(best), self._known(run, best))

    def _known(self, run: Rung, best: Trial) -> list[tuple[float, float]]:
        j, runs, known = self._inner_of[best.number], self._losses[run], []
        further = (s for s in self._losses if run.extent < s.extent)
        for far in sorted(further, key=lambda rung: rung.extent, reverse=True):
            ran = self._losses[far]
            others = runs.keys() & ran.keys() - {j} if j in ran else set()
            known = [(runs[other] - runs[j], ran[other] - ran[j]) for other in sorted(others)]
            if len(known) >= LEAST_COMPARED:
                break
        return known

    def _shared_run(self, i: int, best: Trial) -> Rung | None:
        """Largest common partial run of two configurations on the same rows, if any."""
        both = {i, self._inner_of[best.number]}
        runs = (s for s, losses in self._losses.items() if s.subset < 1 and both <= losses.keys())
        return max(runs, key=lambda rung: rung.extent, default=None)

    def _waiting(self) -> list[int]:
        """Configurations that may be resumed: nearest to the end first, then the best."""
        found = [
            (-self._number_of(last.query), _evaluation(last).loss, i)
            for i in self._open
            if (last := self._last(i)).state == TrialState.STOPPED
        ]
        return [i for _, _, i in sorted(found)]

    def _last(self, i: int) -> Trial:
        return self.history[self._ran[i][-1]]

    def _whole(self, i: int) -> Trial | None:
        last = self._last(i) if i in self._ran else None
        return last if last is not None and last.state == TrialState.COMPLETE else None


def _loss(trial: Trial) -> float:
    return _evaluation(trial).loss


def _tenth(trial: Trial) -> float:
    return _LEADS_BY_SHARE * abs(_loss(trial))


def _evaluation(trial: Trial) -> Evaluation:
    assert trial.evaluation is not None  # noqa: S101 - it has ended with a loss
    return trial.evaluation
