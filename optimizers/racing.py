"""Racing around any method: configurations clearly behind on part of an evaluation are stopped.

A configuration first runs one fold. With many rows, it runs part of that fold before. If it is
clearly behind the incumbent, it stays stopped, and the method is told a paired estimate of its
loss. If not, it runs all folds (the first from the cache), and the method is told the result. The
method itself sees one trial per configuration and no folds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.random import Generator

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Reason, two_digits
from prefect_tune.optimizers.optimizer import KNOWN, NotYet, Optimizer
from prefect_tune.optimizers.race_rules import (
    LEAST_COMPARED,
    Rung,
    as_on_all_rows,
    estimated,
    failed_later,
    is_behind,
    is_behind_on_part,
    joined,
    rungs_of,
    smaller_shares,
)
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.sampling import SpaceExhausted
from prefect_tune.optimizers.surrogates.costs import LIKELY
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.optimizers.trials.outcome import Evaluation, TrialState
from prefect_tune.optimizers.trials.prior import Prior
from prefect_tune.optimizers.trials.trial import Trial

_GATHERED, _GATHERING_SHARE = 8, 0.2
"""Number of configurations that run on part of the rows before the best one is resumed. It is
reduced to as many as fit into this share of the seconds."""
_LEADS_FROM = 1 / 8
"""Least share of the rows with which a partial trial that is clearly ahead may lead."""
_LEADS_BY_GAIN, _LEADS_BY_SHARE = 0.5, 0.1
"""A look at fewer rows leads if it undercuts the loss of the best full trial by a tenth, and by
half of what that trial gained from more rows."""


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
        inner.has_looks = self._has_looks
        self._inner_of: dict[int, int] = {}
        self._ran: dict[int, list[int]] = {}
        self._losses: dict[Rung, dict[int, float]] = {}
        self._smaller: dict[int, float] = {}
        self._provisional: set[int] = set()
        self._spent_seconds = [0.0, 0.0]  # on first looks, and on more rows
        self._told_beside: int | None = None

    @property
    def decisions(self) -> dict[str, Any]:
        """The method's decisions, and `race`: numbers of `begun` and `stopped` configurations."""
        ended = [i for i in self._ran if self._is_told(i) and not self._last(i).query.is_full]
        stopped = [i for i in ended if self.inner.history[i].failure is None]
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
    def can_go_on(self) -> bool:
        """Always true: configurations that keep up are resumed when no more may be started."""
        return True

    @property
    def incumbent(self) -> Trial | None:
        """The trial of the configuration that the method would choose, if that ran all folds.

        A partial trial clearly ahead of it comes first. If no configuration ran all folds, the best
        partial trial leads; a look at fewer rows must be better by a tenth of the loss.
        """
        chosen = self.inner.incumbent
        if chosen is None or chosen == self.inner.history.incumbent:
            return self._ahead() or self.history.incumbent or self._leading_look()
        return self._whole(chosen.number) or super().incumbent

    def _leading_look(self) -> Trial | None:
        if not self._has_looks or self.history.best_partial is None:
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

        A look at few rows must be far better, because models that learn fast need not be the best.
        It never leads under constraints, since measured quantities may grow with the rows.
        """
        best = self.history.incumbent
        if best is None:
            return None
        found = []
        for i in self._ran:
            last = None if self._is_told(i) else self._ended(i)
            if last is None or last.query.is_full or self.history.violation(last) > 0:
                continue
            if self._is_ahead(last, best):
                found.append((-self._number_of(last.query), _loss(last), last.number))
        return self.history[min(found)[-1]] if found else None

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

    @property
    def prior_weight(self) -> float:
        """The method's weight."""
        return self.inner.prior_weight

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

    def measure(self, number: int, constraints: Mapping[str, float]) -> None:
        """Add quantities of a rung; the configuration's last rung counts."""
        super().measure(number, constraints)
        i = self._inner_of[number]
        is_last = self._ran[i][-1] == number
        if is_last and self.inner.history[i].evaluation is not None:
            self.inner.measure(i, constraints)
        self._stop_behind()

    def _propose(self, budget: Budget, rng: Generator) -> Query:  # noqa: ARG002
        """Resume a configuration that keeps up, or start the next one."""
        for i, share in self._smaller.items():
            return self._smaller_look(i, share)
        waiting = self._waiting()
        ending = (i for i in waiting if self._keeps_up(i) and self._would_end(i, budget))
        is_turn = not self._gathers(budget) and not self._owes_looks(budget)
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
        is_whole = self._is_first_whole() or self._is_repeated(query)
        return query if is_whole else self._first_rung(query, budget)

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
        """Rung after this one; after a smaller look, the first of the usual rungs."""
        k = self._number_of(ran)
        return self._rungs[k if ran.subset < self._rungs[k].subset else k + 1]

    def _gathers(self, budget: Budget) -> bool:
        """Whether more looks at parts of the rows come before the best one is resumed."""
        seconds = replace(budget, trials_left=None)  # a look is a small part of a trial
        if not self._has_looks or seconds.share_left <= 1 - _GATHERING_SHARE:
            return False
        lasts = [self._last(i) for i in self._ran]
        is_alone = all(self._number_of(trial.query) == 0 for trial in lasts)
        return is_alone and sum(trial.is_told for trial in lasts) < _GATHERED

    def _owes_looks(self, budget: Budget) -> bool:
        """Whether later rungs, pending ones included, have taken more seconds than first looks."""
        if not self._has_looks or not self._reads_costs(budget):
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
        if not self._has_looks or not self._reads_costs(budget):
            return first
        if not self.costs.is_expected(whole.configuration):
            return first
        allowed = self.costs.allowed_seconds(first, budget)
        share = self._largest_share(first, allowed)
        if share == first.subset:
            return first
        rows, seconds = self.costs.rows(first), self.costs.seconds(first)
        why = f"on fewer rows, as {rows:,.0f} would take {two_digits(seconds)} s"
        before = self._because or Reason(self.name)
        self._because = Reason(before.phase, f"{before.text}; {why}" if before.text else why)
        return replace(first, subset=share)

    def _largest_share(self, look: Query, allowed: float) -> float:
        """Largest share likely to end in time, or the smallest if none is."""
        for share in (shares := smaller_shares(self.objective, look.subset)):
            query = replace(look, subset=share)
            if self.costs.seconds(query, LIKELY) <= allowed:
                return share
        return shares[-1]

    def _smaller_look(self, i: int, share: float) -> Query:
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
    def _has_looks(self) -> bool:
        return self._rungs[0].subset < 1

    def _is_first_whole(self) -> bool:
        """Whether the next configuration runs in full, as nothing exists to compare it with."""
        return not self._ran and not self._has_looks

    def _is_repeated(self, query: Query) -> bool:
        # Only losses on all folds are pairs.
        prior = self.inner.history.prior
        if prior is None or self._has_looks:
            return False
        return query.configuration in prior.start

    def _begun(self, budget: Budget) -> Query:
        if budget.trials_left == 0:
            raise SpaceExhausted("no configuration is left to resume")
        n_told = sum(trial.is_told for trial in self.inner.history)
        return self.inner.ask(replace(budget, trials_spent=n_told))

    def _restore(self, memo: Mapping[str, Any]) -> None:
        super()._restore(memo)
        self.inner._restore(memo)  # noqa: SLF001 - its own, whichever ask was the last

    def _register(self, query: Query) -> None:
        i = self._going_on(query)
        if i is None:
            i = len(self.inner.history) - 1
            self._ran[i] = []
        elif self._smaller.pop(i, None) is None and self._is_told(i):
            # A constraint, and so the incumbent, has changed since then.
            self.inner.history.record(self.inner.history[i].waiting())
        self._ran[i].append(self._n_asks)
        self._inner_of[self._n_asks] = i
        super()._register(query)

    def _going_on(self, query: Query) -> int | None:
        """Number, in the method, of a configuration that is resumed; None for a new one."""
        k, configuration = self._number_of(query), query.configuration
        if query.is_full and self._is_first_whole():
            return None
        if query.is_full and self._is_repeated(query):
            return None
        again = (i for i in self._smaller if self._last(i).query.configuration == configuration)
        if k == 0 and (i := next(again, None)) is not None:
            return i
        found = [
            i
            for i in self._ran
            if (last := self._last(i)).query.configuration == configuration
            and last.state == TrialState.STOPPED
            and (last.query.subset < query.subset or self._number_of(last.query) < k)
            # Studies of earlier versions had one look.
            and all(s.subset < 1 for s in self._rungs[self._number_of(last.query) + 1 : k])
        ]
        if not found and k == 0:
            return None
        if not found:
            raise ValueError(
                f"trial {self._n_asks} resumes a configuration whose previous rung is missing"
            )
        return min(
            found, key=lambda i: (self._is_told(i), -self._number_of(self._last(i).query), i)
        )

    def _number_of(self, query: Query) -> int:
        """Number of a query's rung; `ValueError` if it matches no rung."""
        for k, rung in enumerate(self._rungs):
            if rung.fits(query):
                return k
        if self._has_looks and self._rungs[0].fits_in_part(query):
            return 0
        raise ValueError(
            f"trial {self._n_asks} is of {query.folds or 'all'} folds and a share of "
            f"{query.subset:g} of the rows, which is no rung of this race"
        )

    def _observe(self, trial: Trial) -> None:
        i = self._inner_of[trial.number]
        self._spent_seconds[self._goes_on(trial)] += trial.cost_seconds
        if trial.loss is not None:
            self._losses.setdefault(Rung.asked(trial.query), {})[i] = trial.loss
        last, counts = self._last(i), trial.loss is not None
        is_last = last.number == trial.number
        if not is_last and self._number_of(last.query) == 0 and (counts or last.failure):
            # This rung was rerun after a smaller look had replaced it.
            self._ran[i] = [*(n for n in self._ran[i] if n != trial.number), trial.number]
            is_last = True
        if is_last:
            self._observe_last(i, trial)
        self._stop_behind()

    def _observe_last(self, i: int, trial: Trial) -> None:
        if (share := self._share_instead(trial)) is not None:
            self._smaller[i] = share
            return
        if trial.failure is None and not trial.query.is_full:
            return
        self._take_back(i)
        self.inner.history.estimated.discard(i)
        asked, before = replace(self.inner.history[i], attempts=trial.attempts), self._before(i)
        if trial.failure is not None:
            failure = failed_later(before, trial.failure) if before else trial.failure
            self.inner.tell(asked.failed(failure))
        else:
            seen = _evaluation(trial)
            self.inner.tell(asked.completed(joined(before, seen) if before else seen))

    def _share_instead(self, trial: Trial) -> float | None:
        """Smaller share to look at, if a pilot showed that this one would not end in time."""
        failure, query = trial.failure, trial.query
        if failure is None or failure.pilot is None or not failure.is_unstarted:
            return None
        if not self._has_looks or self._number_of(query) > 0:
            return None
        allowed = failure.pilot.limit_seconds
        for share in smaller_shares(self.objective, query.subset)[1:]:
            if self.costs.seconds(replace(query, subset=share), LIKELY) <= allowed:
                return share
        return None

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

        Each outcome may change the incumbent, so all are checked. With many rows, looks at other
        configurations are told too, as preliminary estimates.
        """
        incumbent = self.history.incumbent
        leads = None if incumbent is None else incumbent.number
        if leads != self._told_beside:
            for i in sorted(self._provisional):
                self._take_back(i)
            self._told_beside = leads
        for i in self._waiting():
            if incumbent is None:
                is_behind, seen = False, None
            else:
                is_behind, seen = self._is_behind(i, incumbent), self._estimated(i, incumbent)
            if is_behind and seen is not None:
                self._take_back(i)
                self._tell_inside(i, seen)
            elif self._has_looks and i not in self._provisional:
                self._tell_inside(i, seen or self._as_on_all_rows(i))
                self._provisional.add(i)

    def _estimated(self, i: int, incumbent: Trial) -> Evaluation | None:
        difference = self._difference(i, incumbent)
        if difference is None:
            return None
        best = _evaluation(incumbent)
        return estimated(self._as_on_all_rows(i), best, self.objective, difference)

    def _take_back(self, i: int) -> None:
        if i in self._provisional:
            self._provisional.discard(i)
            self.inner.history.record(self.inner.history[i].waiting())

    def _tell_inside(self, i: int, evaluation: Evaluation) -> None:
        asked = replace(self.inner.history[i], attempts=self._last(i).attempts)
        self.inner.history.estimated.add(i)
        self.inner.tell(asked.completed(evaluation))

    def _as_on_all_rows(self, i: int) -> Evaluation:
        """All rungs of a configuration together, with steps as slow as on all rows."""
        last, before = self._last(i), self._before(i)
        growth = {
            step: self.costs.growth(last.query, step)
            for step in {cost.step for cost in _evaluation(last).steps}
        }
        seen = as_on_all_rows(_evaluation(last), growth)
        return joined(before, seen) if before else seen

    def _keeps_up(self, i: int) -> bool:
        """Whether a configuration is not clearly behind the best configuration on the most rows."""
        if self.history.incumbent is not None or not self._has_looks:
            return True
        return not self._is_behind(i, self._last(self._waiting()[0]))

    def _is_behind(self, i: int, best: Trial) -> bool:
        if self._last(i).query.subset == 1:
            return is_behind(_evaluation(self._last(i)), _evaluation(best), self.history)
        return self._is_behind_on_part(i, best, 1.0)

    def _is_ahead(self, look: Trial, best: Trial) -> bool:
        i = self._inner_of[look.number]
        if look.query.subset == 1 and not self._has_looks:
            return _evaluation(best).fold_losses[0] - _loss(look) > _tenth(best)
        if look.query.subset == 1:
            return is_behind(_evaluation(look), _evaluation(best), self.history, -1.0)
        if look.query.subset >= _LEADS_FROM:
            return self._is_behind_on_part(i, best, -1.0)
        return not self.objective.constraints and self._is_far_ahead(look, best)

    def _is_far_ahead(self, look: Trial, best: Trial) -> bool:
        """Whether a look, on the same rows if possible, is far better than the best trial."""
        i, j = (self._inner_of[trial.number] for trial in (look, best))
        reached = _evaluation(best).fold_losses[0]
        looks = (losses[j] for s, losses in self._losses.items() if s.subset < 1 and j in losses)
        gain = max(looks, default=reached) - reached
        better = reached - _loss(look)
        if (shared := self._shared_look(i, best)) is not None:
            losses = self._losses[shared]
            better = losses[j] - losses[i] - max(gain, 0.0)
        return better > max(_LEADS_BY_GAIN * abs(gain), _tenth(best))

    def _is_behind_on_part(self, i: int, best: Trial, sign: float) -> bool:
        if (look := self._shared_look(i, best)) is None:
            return False
        losses, j = self._losses[look], self._inner_of[best.number]
        difference = sign * (losses[i] - losses[j])
        return is_behind_on_part(difference, _evaluation(best), self._known(look, best))

    def _known(self, look: Rung, best: Trial) -> list[tuple[float, float]]:
        j, looks, known = self._inner_of[best.number], self._losses[look], []
        further = (s for s in self._losses if look.extent < s.extent)
        for far in sorted(further, key=lambda rung: rung.extent, reverse=True):
            ran = self._losses[far]
            others = looks.keys() & ran.keys() - {j} if j in ran else set()
            known = [(looks[other] - looks[j], ran[other] - ran[j]) for other in sorted(others)]
            if len(known) >= LEAST_COMPARED:
                break
        return known

    def _shared_look(self, i: int, best: Trial) -> Rung | None:
        """Largest common look of two configurations on the same rows, if any."""
        both = {i, self._inner_of[best.number]}
        looks = (s for s, losses in self._losses.items() if s.subset < 1 and both <= losses.keys())
        return max(looks, key=lambda rung: rung.extent, default=None)

    def _difference(self, i: int, incumbent: Trial) -> float | None:
        """Difference to the incumbent in the last rung; None without a common look."""
        last = self._last(i)
        if last.query.subset == 1:
            return _evaluation(last).fold_losses[0] - _evaluation(incumbent).fold_losses[0]
        if (look := self._shared_look(i, incumbent)) is None:
            return None
        return self._losses[look][i] - self._losses[look][self._inner_of[incumbent.number]]

    def _waiting(self) -> list[int]:
        """Configurations that may be resumed: nearest to the end first, then the best."""
        found = [
            (-self._number_of(last.query), _evaluation(last).loss, i)
            for i in self._ran
            if (last := self._last(i)).state == TrialState.STOPPED and not self._is_told(i)
        ]
        return [i for _, _, i in sorted(found)]

    def _last(self, i: int) -> Trial:
        return self.history[self._ran[i][-1]]

    def _whole(self, i: int) -> Trial | None:
        last = self._last(i) if i in self._ran else None
        return last if last is not None and last.state == TrialState.COMPLETE else None

    def _is_told(self, i: int) -> bool:
        return self.inner.history[i].is_told and i not in self._provisional


def _loss(trial: Trial) -> float:
    return _evaluation(trial).loss


def _tenth(trial: Trial) -> float:
    return _LEADS_BY_SHARE * abs(_loss(trial))


def _evaluation(trial: Trial) -> Evaluation:
    assert trial.evaluation is not None  # noqa: S101 - it has ended with a loss
    return trial.evaluation
