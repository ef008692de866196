"""Racing for any method: stop configurations that are clearly behind after part of an evaluation.

A configuration is first evaluated on one fold. If the data have many rows, evaluations on parts of
the fold (partial runs) come first. After each of these rungs, the configuration's loss is compared
with the incumbent's loss on the same rung, so both losses use the same rows. Finished
configurations show how large chance differences are.

A configuration that is clearly behind stays stopped, and the method is told a paired estimate of
the configuration's loss. Any other configuration is evaluated on all folds (the first fold is
cached), and the method is told the loss. If the data have many rows, the method's history also
contains estimates for configurations that are still racing. The method sees one trial per
configuration and no folds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Reason, share_text, two_digits
from prefect_tune.optimizers.models.seconds import LIKELY, PER_ROWS
from prefect_tune.optimizers.optimizer import KNOWN, NotYet, Optimizer
from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.configuration import Configuration, Query, is_allowed
from prefect_tune.optimizers.space.sampling import ATTEMPTS, SpaceExhausted
from prefect_tune.optimizers.space.vectors import Encoding, reflected
from prefect_tune.optimizers.trials.earlier import Prior
from prefect_tune.optimizers.trials.history import LEAST_KNOWN, History
from prefect_tune.optimizers.trials.objective import LEAST_ROWS, MANY_ROWS, Objective
from prefect_tune.optimizers.trials.outcome import Evaluation, Failure, TrialState
from prefect_tune.optimizers.trials.trial import Trial

_PARTIAL_ROWS = 10_000
"""Minimum rows of a partial run, as in FLAML 2.7."""
_RUNG = 4
"""Factor between the rows of successive partial runs, which is the usual factor of ASHA."""


class Rung(NamedTuple):
    """A rung: the part of an evaluation that a trial runs.

    Attributes:
        subset: Fraction of the training rows.
        folds: Number of folds; infinite for all folds.
        held_out: Fraction of each fold's held-out rows.
    """

    subset: float = 1.0
    folds: float = inf
    held_out: float = 1.0

    @classmethod
    def of(cls, query: Query) -> "Rung":
        """Return the rung of a query."""
        return cls(query.subset, query.folds or inf, query.held_out)

    def query(self, whole: Query) -> Query:
        """Return a full evaluation's query, restricted to this rung."""
        folds = None if self.folds == inf else int(self.folds)
        return replace(whole, subset=self.subset, folds=folds, held_out=self.held_out)

    @property
    def text(self) -> str:
        """Description of the rung for users."""
        if self.subset < 1:
            return f"{share_text(self.subset)} of the rows"
        return "a full evaluation" if self.folds == inf else "the first fold"


def is_large(objective: Objective) -> bool:
    """Return whether the data have enough rows for partial runs."""
    n_rows = objective.n_rows or 0
    return n_rows > MANY_ROWS and _share(objective, n_rows) < 1


def rungs_of(objective: Objective) -> tuple[Rung, ...]:
    """Return the rungs of a configuration, ending with the full evaluation.

    The rung before the full evaluation is one fold. With more than 20,000 training rows, partial
    runs on this fold come first. The first partial run uses the smallest fraction 2^-k of the rows
    that contains at least 10,000 rows and 100 rows of the rarest class. Each further partial run
    uses four times as many rows, up to a quarter of the rows. The fractions of the held-out rows
    follow the same rules.

    Raises:
        ValueError: If no rung precedes the full evaluation.
    """
    fold = Rung() if objective.n_folds == 1 else Rung(folds=1)
    share = _share(objective, objective.n_rows or 0) if is_large(objective) else 1.0
    judged = _share(objective, objective.n_held_out or 0)
    rungs: list[Rung] = []
    while share < 1 and (not rungs or share <= 1 / _RUNG):
        rungs.append(Rung(share, fold.folds, judged))
        share, judged = _RUNG * share, min(_RUNG * judged, 1.0)
    if fold == Rung() and not rungs:
        raise ValueError(
            f"a race needs at least 2 folds, or more than {MANY_ROWS:,} training rows; this study "
            f"has {objective.n_folds} fold"
        )
    return tuple(dict.fromkeys([*rungs, fold, Rung()]))


def _share(objective: Objective, n_rows: int) -> float:
    """Return the smallest fraction 2^-k of `n_rows` rows that is large enough for a partial run."""
    least: float = _PARTIAL_ROWS
    if objective.n_classes and objective.n_rarest is not None:
        rarest = LEAST_ROWS * (objective.n_rows or 0)
        least = max(least, rarest / objective.n_rarest if objective.n_rarest else inf)
    share = 1.0
    while share * n_rows / 2 >= least:
        share /= 2
    return share


def smaller_shares(objective: Objective, share: float) -> list[float]:
    """Return `share` and its successive halves that contain at least 1,000 rows."""
    shares = [share]
    while shares[-1] / 2 * (objective.n_rows or 0) >= PER_ROWS:
        shares.append(shares[-1] / 2)
    return shares


def is_behind(
    first: Evaluation, incumbent: Evaluation, history: History, sign: float = 1.0
) -> bool:
    """Return whether a configuration is worse than the incumbent on the first fold, by a margin.

    Until the margin can be estimated, the configuration must be worse than the incumbent's worst
    fold (the forgiving rule after one fold in Bergman, Purucker and Hutter 2024, "Don't Waste Your
    Time: Early Stopping Cross-Validation", arXiv 2405.03389). If `sign` is -1, return whether the
    configuration is better by the margin.
    """
    known, loss = margin(incumbent, history), sign * first.fold_losses[0]
    if known is None:
        return loss > max(sign * other for other in incumbent.fold_losses)
    return loss - sign * incumbent.fold_losses[0] > known


def margin(incumbent: Evaluation, history: History) -> float | None:
    """Return the largest difference on one fold explainable by chance; None if unknown.

    The margin is s sqrt(1 - 1/K), where s is the standard deviation, over K folds, of a
    configuration's differences from the incumbent, pooled over all fully evaluated configurations.
    """
    n_folds = len(incumbent.fold_losses)
    others = [
        trial.evaluation.fold_losses
        for trial in history.complete
        if trial.evaluation is not None
        and trial.evaluation is not incumbent
        and len(trial.evaluation.fold_losses) == n_folds
    ]
    if n_folds < 2 or len(others) < LEAST_KNOWN:
        return None
    differences = np.array(others) - np.array(incumbent.fold_losses)
    spread = sqrt(float(np.mean(np.var(differences, axis=1, ddof=1))))
    return spread * sqrt(1 - 1 / n_folds)


def is_behind_on_part(
    difference: float, incumbent: Evaluation, known: Sequence[tuple[float, float]]
) -> bool:
    """Return whether a loss is worse than the incumbent's on part of the rows, by a margin.

    The margin is the root mean square error of differences on part of the rows, estimated from
    `known`. With fewer than three pairs, the margin is the difference between the incumbent's worst
    and best folds; if the incumbent has only one fold, no loss is behind.

    Args:
        difference: Loss minus the incumbent's loss, on part of the rows.
        incumbent: Best configuration, or the configuration on the highest rung.
        known: Pairs of differences of other configurations: on this part of the rows, and on more
            rows.
    """
    if len(known) >= LEAST_KNOWN:
        runs, wholes = np.array(known).T
        return difference > sqrt(float(np.mean((runs - wholes) ** 2)))
    if len(incumbent.fold_losses) < 2:
        return False
    return difference > max(incumbent.fold_losses) - min(incumbent.fold_losses)


def estimated(
    rung: Evaluation, incumbent: Evaluation, objective: Objective, difference: float
) -> Evaluation:
    """Return an estimate of the full evaluation of a configuration.

    The loss of each fold is the incumbent's loss plus `difference`, within the metric's bounds. All
    other values, such as seconds, come from the evaluation on `rung`.
    """
    losses = tuple(
        min(max(loss + difference, objective.lower), objective.upper)
        for loss in incumbent.fold_losses
    )
    return replace(rung, loss=sum(losses) / len(losses), fold_losses=losses, risks=())


_GATHERED, _GATHERING_SHARE = 8, 0.2
"""Number of configurations with partial runs before the best is resumed, and fraction of the
seconds after which the best is resumed in any case."""
_LATER_TIMES = 2.0
"""Seconds of later rungs, relative to the seconds of first rungs."""
_MOST_SHARE = 0.25
"""Largest fraction of the seconds left for the next rung of a slow configuration."""
_CONFIGURATIONS_PER_CHANGE = 3
"""Number of configurations per small change, if the budget has no seconds."""
_LEAST_RUNS, _STEP = 6, 0.1
"""Number of runs that must fit into the budget; and step size as in FLOW2, in the unit cube."""
_LEADS_BY, _LEADS_FULL_BY = 0.1, 0.5
"""Fraction by which the loss of a run on fewer rows must be lower for the run to lead: before any
full trial, and ahead of the best full trial while chance differences are unknown."""


def _is_capacity(algorithm: Algorithm, name: str) -> bool:
    """Return whether a hyperparameter, other than the rounds, adds capacity on many rows."""
    return name != algorithm.rounds and name in {*algorithm.growth, *algorithm.transforms}


class Racing(Optimizer):
    """A method whose configurations race.

    The history contains one trial per rung. The history of the `inner` method contains one trial
    per configuration, which is pending until the configuration's outcome is known.

    Raises:
        ValueError: If the method cannot be raced, or the study has one fold and too few rows.
    """

    def __init__(self, inner: Optimizer) -> None:
        if inner.method.fidelities or inner.bootstraps:
            chosen = ", ".join(sorted(inner.method.fidelities))
            reason = f"chooses the fidelity ({chosen})" if chosen else "needs all folds"
            raise ValueError(f"method {inner.name!r} cannot be raced, because it {reason}")
        self._rungs = rungs_of(inner.objective)
        self.method = inner.method  # type: ignore[misc]  # the declaration of the inner method
        super().__init__(inner.space, inner.seed, inner.objective)
        self.options = inner.options
        self.inner = inner
        inner.share_costs(self.costs)
        inner.has_partial_runs = self._has_partial_runs
        self._numbers: dict[Configuration, int] = {}
        self._losses: dict[Rung, dict[int, float]] = {}
        self._smaller: dict[int, float] = {}
        self._open: set[int] = set()
        self._led_by: int | None = None
        self._encoding, last = Encoding(self.space), self.space.steps[-1].name
        self._of_model = np.array([c[0] == last for c in self._encoding.columns], dtype=np.bool_)
        self._is_capacity = np.array(
            [_is_capacity(self.space.step(s).algorithm(a), h) for s, a, h in self._encoding.columns]
        )

    @property
    def decisions(self) -> dict[str, Any]:
        """The method's decisions, and the numbers of configurations under `race`.

        `begun` is the number of started configurations, and `stopped` the number of stopped ones.
        """
        ended = (t for i, t in enumerate(self.inner.history) if i not in self._open)
        stopped = [t for t in ended if t.failure is None and not self._last(t.number).query.is_full]
        race = {"begun": len(self._numbers), "stopped": len(stopped)}
        return {**self.inner.decisions, "race": race}

    @property
    def notes(self) -> Sequence[str]:
        """The method's notes."""
        return self.inner.notes

    @property
    def resumes_configurations(self) -> bool:
        """True, because configurations that are not behind are resumed at the end of the budget."""
        return True

    @property
    def incumbent(self) -> Trial | None:
        """The best full trial, or a partial trial that is clearly better.

        A partial trial with less than half of the best full trial's loss is clearly better. Before
        the first full trial, the incumbent is the best partial trial; a run on fewer rows counts as
        better only by a tenth of the loss. A run on part of the rows beats a full trial only with a
        lower loss, because on few rows small models are ahead that fall behind on all rows. Under
        constraints, it never does, because measured quantities may grow with the rows.
        """
        best = self.history.incumbent
        runs = [run for i in self._open if (run := self._ended(i)) and not run.query.is_full]
        runs = [run for run in runs if self.history.violation(run) <= 0]
        if best is not None:
            runs = [t for t in runs if t.query.subset == 1 or _loss(t) < _loss(best)]
            may_lead = (t for t in runs if t.query.subset == 1 or not self.objective.constraints)
            least = _LEADS_FULL_BY * (_loss(best) - self.objective.lower)  # inf without a bound
            ahead = [
                run
                for run in may_lead
                if self._is_behind(run, best, -1.0) or _loss(run) - self.objective.lower < least
            ]
            key = lambda t: (-self._number_of(t.query), t.loss, t.number)  # noqa: E731
            return min(ahead, key=key, default=best)
        leading: Trial | None = None
        for run in sorted(runs, key=lambda t: (-t.query.subset, _loss(t), t.number)):
            if leading is None or _loss(leading) - _loss(run) > _LEADS_BY * abs(_loss(leading)):
                leading = run
        return leading or self.history.best_partial

    def _ended(self, i: int) -> Trial | None:
        """Return a configuration's last trial with a loss; None if any of its trials failed."""
        runs = self._runs(i)
        if any(t.failure is not None and not t.failure.is_unstarted for t in runs):
            return None
        return next((t for t in reversed(runs) if t.evaluation is not None), None)

    def begin_with(self, start: Iterable[Configuration], name: str = KNOWN) -> None:
        """Race the configurations in `start` first, in this order."""
        self.inner.begin_with(start, name)

    def begin_after(self, prior: Prior) -> None:
        """Start with `prior.start`, directly on all folds unless partial runs come first."""
        self.inner.begin_after(prior)

    def restore(self, number: int, query: Query, memo: Mapping[str, Any] | None) -> None:
        """Record an ask of an earlier process.

        A first rung also counts as an ask of the inner method.
        """
        if number == self._n_asks and query.configuration not in self._numbers:
            self.inner.restore(len(self.inner.history), Rung().query(query), None)
        super().restore(number, query, memo)

    def retry(self, number: int) -> None:
        """Return a failed trial, and its configuration in the inner method, to pending."""
        super().retry(number)
        i = self._number(self.history[number])
        self._smaller.pop(i, None)
        if self.inner.history[i].failure is not None:
            self.inner.retry(i)
            self._open.add(i)

    def _propose(self, budget: Budget, rng: Generator) -> Query:
        """Resume a configuration that is not behind, or start the next configuration."""
        for i, share in self._smaller.items():
            return self._smaller_run(i, share)
        waiting = self._waiting()
        left = inf if budget.seconds_left is None else budget.seconds_left
        ending = [i for i in waiting if self._keeps_up(i) and self._would_end(i, budget)]
        fallback = (ending or waiting)[:1]
        if self._has_partial_runs:  # a slow next rung would take the time of many others
            best = self.history.incumbent
            most = max(_MOST_SHARE * left, 0.0 if best is None else 2 * best.cost_seconds)
            quick = [i for i in ending if self._seconds_of_next_rung(i) <= most]
            ending = quick if best is not None else quick or ending
        is_turn = not self._gathers(budget) and not self._owes_first_runs(budget)
        if is_turn and (query := self._later_run(ending, budget, rng)) is not None:
            return query
        try:
            query = self._begun(budget)
        except (SpaceExhausted, NotYet):
            if fallback:
                return self._next_rung(fallback[0])
            if self.history.pending:  # a pending configuration may be resumed later
                raise NotYet from None
            raise
        self.memo, self._because = self.inner.memo, self.inner.reason
        # The first configuration has nothing to compare with. A configuration repeated from an
        # earlier run needs all folds for comparison with its earlier loss.
        prior = self.inner.history.prior
        is_repeated = prior is not None and query.configuration in prior.start
        if not self._has_partial_runs and (not self._numbers or is_repeated):
            return query
        return self._first_rung(query, budget)

    def _begun(self, budget: Budget) -> Query:
        if budget.trials_left == 0:
            raise SpaceExhausted("no configuration can be resumed")
        n_told = sum(trial.is_told for trial in self.inner.history)
        return self.inner.ask(replace(budget, trials_spent=n_told))

    def _later_run(self, ending: Sequence[int], budget: Budget, rng: Generator) -> Query | None:
        """Return the query for a later rung, or None.

        On many rows, configurations that lead the best full trial on part of the rows come first.
        Configurations that trail then alternate with small changes of the best model.
        """
        best = self.history.incumbent
        if not self._has_partial_runs or best is None:
            return self._next_rung(ending[0]) if ending else None
        found = [(i, d) for i in ending if (d := self._difference(i, best)) is not None]
        if leading := [i for i, difference in found if difference <= 0]:
            return self._next_rung(leading[0])
        n_changes = len(self.inner.inserted)
        n_later = sum(self._number_of(trial.query) > 0 for trial in self.history)
        is_turn = 2 * n_changes <= n_later or not found
        if budget.seconds_left is None:  # otherwise seconds leave room for new configurations
            is_turn = is_turn and _CONFIGURATIONS_PER_CHANGE * n_changes <= len(self._numbers)
        if (
            budget.trials_left != 0
            and is_turn
            and (changed := self._changed(budget, rng)) is not None
        ):
            return changed
        return self._next_rung(found[0][0]) if found else None

    def _changed(self, budget: Budget, rng: Generator) -> Query | None:
        """Return the best configuration with small changes of its model, or None.

        The trial uses the most rows on which six runs fit into the budget, because capacity is
        worth more on many rows. The changes form one step of FLOW2 (Wu, Wang and Huang 2021,
        "Frugal Optimization for Cost-related Hyperparameters", algorithm 1): toward more capacity
        while this helps, then in a random direction or, if the last such step failed, in the
        opposite direction.
        """
        seconds = inf
        if budget.seconds_left is not None:
            seconds = budget.seconds_spent + budget.seconds_left
        for rung in reversed(self._rungs[1:]):
            losses = self._losses.get(rung, {})
            best = min(losses, key=lambda i: (self._violation(i), losses[i], i), default=0)
            center = self.inner.history[best].query.configuration
            query = rung.query(Query(center))
            if losses and (seconds == inf or _LEAST_RUNS * self.costs.seconds(query) <= seconds):
                break
        else:
            return None
        positions, is_active = self._encoding.to_cube(center)
        is_moved = is_active & self._of_model
        radius = _STEP * sqrt(is_moved.sum())
        newest = self.inner.history[max(losses)].query.configuration
        back = positions - self._encoding.to_cube(newest)[0]
        was_change = newest.path == center.path and 0 < np.linalg.norm(back) <= 1.5 * radius
        steps = [back] if was_change else []
        drawn = rng.normal(size=(ATTEMPTS, len(positions)))
        directions = np.vstack([self._is_capacity, drawn]) * is_moved
        steps += [radius * d / (np.linalg.norm(d) or 1.0) for d in directions]
        allowed = inf
        if seconds < inf:
            allowed = self.costs.allowed_seconds(query, budget, is_first=False)
        for step in steps:
            changed = self._encoding.from_cube(center.path, reflected(positions + step))
            query = rung.query(Query(changed))
            is_new = changed not in self._numbers and is_allowed(self.space, changed)
            if is_new and (allowed == inf or self.costs.seconds(query, LIKELY) <= allowed):
                self.inner.restore(len(self.inner.history), Query(changed), None)
                self.memo, about = None, f"a small change of the best model ({rung.text})"
                self._because = Reason("race", about)
                return query
        return None

    def _next_rung(self, i: int) -> Query:
        ran = Rung.of(self._last(i).query)
        follows = self._following(ran)
        self._because = Reason("race", f"not behind on {ran.text}; next: {follows.text}")
        return follows.query(self.inner.history[i].query)

    def _following(self, ran: Rung) -> Rung:
        """Return the rung after `ran`, or the first standard rung if `ran` is smaller."""
        return next(rung for rung in self._rungs if rung[:2] > ran[:2])

    def _gathers(self, budget: Budget) -> bool:
        """Return whether more partial runs come before the best configuration is resumed."""
        seconds = replace(budget, trials_left=None)  # a partial run is a small part of a trial
        if not self._has_partial_runs or seconds.share_left <= 1 - _GATHERING_SHARE:
            return False
        is_alone = all(self._number_of(trial.query) == 0 for trial in self.history)
        lasts = [self._last(i) for i in range(len(self.inner.history))]
        return is_alone and sum(trial.is_told for trial in lasts) < _GATHERED

    def _owes_first_runs(self, budget: Budget) -> bool:
        """Return whether later rungs, including pending trials, took more than their share."""
        if not self._has_partial_runs or not self._reads_costs(budget):
            return False
        spent = [0.0, 0.0]
        for trial in self.history:
            is_later = self._number_of(trial.query) > 0
            is_pending = is_later and not trial.is_told
            spent[is_later] += self.costs.seconds(trial.query) if is_pending else trial.cost_seconds
        return spent[1] > _LATER_TIMES * spent[0]

    def _first_rung(self, whole: Query, budget: Budget) -> Query:
        """Return the query for the first rung, with fewer rows if the rung would take too long."""
        first = self._rungs[0].query(whole)
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
        why = f"on fewer rows, because {rows:,.0f} rows would take {two_digits(seconds)} s"
        before = self._because or Reason(self.name)
        self._because = Reason(before.phase, f"{before.text}; {why}" if before.text else why)
        return replace(first, subset=share)

    def _is_likely(self, run: Query, share: float, allowed: float) -> bool:
        """Return whether a run on a fraction `share` of the rows is likely to end in time."""
        return self.costs.seconds(replace(run, subset=share), LIKELY) <= allowed

    def _smaller_run(self, i: int, share: float) -> Query:
        query = self._last(i).query
        why = f"again on fewer rows: a pilot predicts too long a run on {share_text(query.subset)}"
        self._because = Reason("race", why)
        return replace(query, subset=share)

    def _would_end(self, i: int, budget: Budget) -> bool:
        if not self._reads_costs(budget):
            return True
        whole = self.inner.history[i].query
        allowed = self.costs.allowed_seconds(whole, budget, is_first=False)
        return self._seconds_of_next_rung(i) <= allowed

    def _seconds_of_next_rung(self, i: int) -> float:
        last = self._last(i).query
        follows = self._following(Rung.of(last)).query(self.inner.history[i].query)
        done = last.folds or 0 if last.subset == follows.subset else 0
        return self.costs.seconds(follows, LIKELY, folds_done=done)

    def _reads_costs(self, budget: Budget) -> bool:
        """Return whether predicted run times may influence asks."""
        return budget.seconds_left is not None or self.method.draws_on_cost

    @property
    def _has_partial_runs(self) -> bool:
        return self._rungs[0].subset < 1

    def _restore(self, memo: Mapping[str, Any]) -> None:
        super()._restore(memo)
        self.inner._restore(memo)  # noqa: SLF001 - every memo is a memo of the inner method

    def _register(self, query: Query) -> None:
        is_new = query.configuration not in self._numbers
        if self._has_partial_runs and is_new and self._number_of(query) > 0:
            self.inner.inserted.add(query.configuration)
        i = self._numbers.setdefault(query.configuration, len(self.inner.history) - 1)
        self._smaller.pop(i, None)
        self._open.add(i)
        super()._register(query)

    def _observe(self, trial: Trial) -> None:
        i = self._number(trial)
        if trial.loss is not None:
            self._losses.setdefault(Rung.of(trial.query), {})[i] = trial.loss
        if self._last(i).number == trial.number:
            if (share := self._share_instead(trial)) is not None:
                self._smaller[i] = share
            elif trial.failure or trial.query.is_full:
                self.inner.history.estimated.discard(i)
                self._conclude(i, self._outcome(i))
        self._stop_behind()

    def _share_instead(self, trial: Trial) -> float | None:
        """Return a smaller fraction of rows for repeating a trial; None if no repeat is needed.

        A trial is repeated if a pilot predicted that the trial would take too long.
        """
        failure, query = trial.failure, trial.query
        if failure is None or failure.pilot is None or not failure.is_unstarted:
            return None
        if query.subset == 1 or self._number_of(query) > 0:
            return None
        allowed, shares = failure.pilot.limit_seconds, smaller_shares(self.objective, query.subset)
        return next((s for s in shares[1:] if self._is_likely(query, s, allowed)), None)

    def _stop_behind(self) -> None:
        """Tell the inner method about configurations that are clearly behind and remain stopped.

        Each outcome may change the incumbent, so all configurations are checked. If the data have
        many rows, the method's history also gets estimates for all other configurations.
        """
        incumbent, inner = self.history.incumbent, self.inner.history
        leads = None if incumbent is None else incumbent.number
        is_led_by_other, self._led_by = leads != self._led_by, leads
        for i in self._waiting():
            estimate = self._estimated(i, incumbent)
            if incumbent is not None and self._is_behind(self._last(i), incumbent):
                inner.estimated.add(i)
                self._conclude(i, estimate)
            elif self._has_partial_runs and (is_led_by_other or not inner[i].is_told):
                inner.estimated.add(i)
                inner.record(inner[i].completed(estimate))

    def _conclude(self, i: int, outcome: Evaluation | Failure) -> None:
        """Tell the inner method the outcome of a configuration, in place of any estimate."""
        asked = self.inner.history[i].waiting()
        self.inner.history.record(asked)
        if isinstance(outcome, Failure):
            self.inner.tell(asked.failed(outcome))
        else:
            self.inner.tell(asked.completed(outcome))
        self._open.discard(i)

    def _outcome(self, i: int) -> Any:
        """Return the outcome of a configuration's last rung, with the seconds of all rungs."""
        last, seconds = self._last(i), sum(trial.cost_seconds for trial in self._runs(i))
        outcome = last.evaluation or last.failure
        assert outcome is not None  # noqa: S101 - it has ended
        return replace(outcome, cost_seconds=seconds)

    def _estimated(self, i: int, best: Trial | None) -> Evaluation:
        """Return a paired estimate of a configuration's full evaluation.

        If the configuration shares no partial run with the best configuration, return the current
        outcome.
        """
        outcome = self._outcome(i)
        difference = None if best is None else self._difference(i, best)
        if best is None or difference is None:
            return outcome
        return estimated(outcome, _evaluation(best), self.objective, difference)

    def _difference(self, i: int, best: Trial) -> float | None:
        """Return the loss of a configuration minus the best loss on the same rows, if known."""
        last = self._last(i)
        if last.query.subset == 1:
            return _evaluation(last).fold_losses[0] - _evaluation(best).fold_losses[0]
        compared = self._compared(i, best)
        return None if compared is None else self._difference_on(*compared, i, best)

    def _difference_on(self, rung: Rung, trial: Trial, i: int, best: Trial) -> float:
        """Return a configuration's difference from `best`, given the difference from `trial`."""
        losses = self._losses[rung]
        return losses[i] - losses[self._number(trial)] + _loss(trial) - _loss(best)

    def _compared(self, i: int, best: Trial) -> tuple[Rung, Trial] | None:
        """Return the highest rung on part of the rows that configuration i and `best` share.

        The trial is `best` or, if no rung is shared, the next best full trial that shares a rung.
        """
        for trial in (best, *sorted(self.history.complete, key=_loss)):
            if (rung := self._shared_rung(i, trial)) is not None:
                return rung, trial
        return None

    def _keeps_up(self, i: int) -> bool:
        """Return whether a configuration may be resumed; always true once a full trial qualifies.

        Until then, a configuration with partial runs must not be clearly behind the best on the
        highest rung.
        """
        if self.history.incumbent is not None or not self._has_partial_runs:
            return True
        return not self._is_behind(self._last(i), self._last(self._waiting()[0]))

    def _is_behind(self, run: Trial, best: Trial, sign: float = 1.0) -> bool:
        """Return whether a run is worse than `best` by a margin, or better if `sign` is -1."""
        if run.query.subset == 1:
            return is_behind(_evaluation(run), _evaluation(best), self.history, sign)
        i = self._number(run)
        if (compared := self._compared(i, best)) is None:
            return False
        rung, trial = compared
        difference = self._difference_on(rung, trial, i, best)
        known = self._known(rung, self._number(trial))
        return is_behind_on_part(sign * difference, _evaluation(best), known)

    def _known(self, rung: Rung, j: int) -> list[tuple[float, float]]:
        """Return pairs of other configurations' differences from configuration j.

        The first difference is on `rung`, and the second on the highest rung that enough other
        configurations have reached.
        """
        runs, known = self._losses[rung], list[tuple[float, float]]()
        for far in sorted((r for r in self._losses if r > rung), reverse=True):
            ran = self._losses[far]
            others = sorted(runs.keys() & ran.keys() - {j}) if j in ran else []
            known = [(runs[other] - runs[j], ran[other] - ran[j]) for other in others]
            if len(known) >= LEAST_KNOWN:
                break
        return known

    def _shared_rung(self, i: int, best: Trial) -> Rung | None:
        """Return the highest rung on part of the rows that configuration i and `best` share."""
        both = {i, self._number(best)}
        rungs = (r for r, losses in self._losses.items() if r.subset < 1 and both <= losses.keys())
        return max(rungs, default=None)

    def _waiting(self) -> list[int]:
        """Return the configurations that may be resumed, by highest rung and then by loss."""
        lasts = [(i, self._last(i)) for i in self._open]
        found = [
            (-self._number_of(last.query), _loss(last), i)
            for i, last in lasts
            if last.state == TrialState.STOPPED
        ]
        return [i for _, _, i in sorted(found)]

    def _number_of(self, query: Query) -> int:
        """Return the number of a query's rung; 0 also for a run smaller than the first rung."""
        return sum(rung[:2] < Rung.of(query)[:2] for rung in self._rungs)

    def _number(self, trial: Trial) -> int:
        """Return the number of a trial's configuration in the inner method."""
        return self._numbers[trial.query.configuration]

    def _runs(self, i: int) -> tuple[Trial, ...]:
        return self.history.trials_of(self.inner.history[i].query.configuration)

    def _violation(self, i: int) -> float:
        ended = self._ended(i)
        return inf if ended is None else self.history.violation(ended)

    def _last(self, i: int) -> Trial:
        return self._runs(i)[-1]


def _loss(trial: Trial) -> float:
    return _evaluation(trial).loss


def _evaluation(trial: Trial) -> Evaluation:
    assert trial.evaluation is not None  # noqa: S101 - it has ended with a loss
    return trial.evaluation
