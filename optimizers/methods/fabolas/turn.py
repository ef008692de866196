"""One ask after the first fit: confirm, verify, or search (algorithm 1, line 4)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from statistics import median

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Reason
from prefect_tune.optimizers.methods.fabolas.belief import SubsetBelief
from prefect_tune.optimizers.methods.fabolas.decisions import AnswerStanding
from prefect_tune.optimizers.methods.fabolas.recipe import Acquisition, SearchRecipe, Sizes
from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.methods.fabolas.search import ScoredCandidate, Search
from prefect_tune.optimizers.methods.rungs import all_begun
from prefect_tune.optimizers.optimizer import NotYet
from prefect_tune.optimizers.space.candidate_space import Candidates
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.sampling import SpaceExhausted
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.trial import Trial

_CONFIRM = Reason("confirm", "predicted best, on all rows before the budget ends")
_VERIFY = Reason("verify", "predicted best, whose loss on all rows is not known well enough")
_SOUGHT: Mapping[Acquisition, Reason] = {
    "gain": Reason("information", "tells most about the best configuration"),
    "gain_per_cost": Reason(
        "information per second", "tells most about the best configuration on all rows per second"
    ),
    "divergence_per_cost": Reason(
        "information per second", "tells most about the best configuration on all rows per second"
    ),
    "improvement": Reason(
        "expected improvement", "largest expected improvement by a Gaussian process"
    ),
}


@dataclass(frozen=True, slots=True)
class Proposal:
    """The next query, and its reason as a key (confirm, verify, search or improve) and as text.

    `models` has the probability that the best pipeline has a model algorithm, by its id, if the
    minimiser was sought.
    """

    query: Query
    reason: str
    because: Reason
    models: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FabolasTurn:
    """One ask, given the history, the budget, a belief and the ranking of configurations."""

    inputs: PipelineInputs
    sizes: Sizes
    recipe: SearchRecipe
    history: History
    budget: Budget
    belief: SubsetBelief
    standing: AnswerStanding
    gives_up_subsets: bool
    is_proven: bool
    n_first: int
    n_confirmed: int
    rng: Generator

    def proposal(self) -> Proposal:
        """Return the next query; raise `SpaceExhausted` if none is left, or `NotYet` to wait."""
        best = [t.query.configuration for t in self.standing.trials[: self.recipe.n_confirmed]]
        n_left = max(self.recipe.n_confirmed - self.n_confirmed, 0)
        unconfirmed = [c for c in best if c not in self._asked_in_full][:n_left]
        unconfirmed = [c for c in unconfirmed if self._fits(c, 1.0)]
        may_begin = self.budget.trials_left != 0 or not self.recipe.n_confirmed
        if unconfirmed and (not may_begin or self._is_late(unconfirmed)):
            return Proposal(Query(unconfirmed[0]), "confirm", _CONFIRM)
        if not may_begin:
            if self.history.pending:
                raise NotYet
            raise all_begun()
        doubtful = self._doubtful()
        if doubtful is not None and self._is_paid(doubtful):
            configuration = self.standing.trials[doubtful].query.configuration
            return Proposal(Query(configuration), "verify", _VERIFY)
        return self._searched()

    def _is_late(self, unconfirmed: list[Configuration]) -> bool:
        if self._seconds_left is None:
            return False
        rows = self.inputs.at(self.inputs.encode(unconfirmed), 1.0)
        each = RULES.reserved * self.belief.seconds(rows) + self._overhead
        whole = self._seconds_left + self.budget.seconds_spent / self.budget.n_workers
        n_workers = self.budget.n_workers
        # As many as half of the budget affords, at least one.
        needed = max(
            (s for s in np.maximum(np.cumsum(each) / n_workers, each) if s <= whole / 2),
            default=float(each[0]),
        )
        return bool(needed >= self._seconds_left)

    def _doubtful(self) -> int | None:
        """Place of the first of the predicted best whose loss on all rows is not known yet."""
        if self.recipe.verify_every is None:
            return None
        for place, trial in enumerate(self.standing.trials):
            configuration = trial.query.configuration
            is_better = self.standing.mean[place] <= self.standing.mean[0]
            if not is_better or configuration in self._asked_in_full:
                continue
            row = self.inputs.at(self.inputs.encode([configuration]), 1.0)
            if self.standing.deviation[place] ** 2 > RULES.told * float(self.belief.noise(row)[0]):
                return place if self._fits(configuration, 1.0) else None
        return None

    def _is_paid(self, place: int) -> bool:
        """Whether subsets have cost enough, or shown too little, to justify a full evaluation."""
        configuration = self.standing.trials[place].query.configuration
        row = self.inputs.at(self.inputs.encode([configuration]), 1.0)
        variance = float(self.standing.deviation[place] ** 2 + self.belief.noise(row)[0])
        is_at_sea = variance > RULES.vague**2 and not self.is_proven
        if is_at_sea and len(self._asked_in_full) < RULES.few_full:
            return True
        learned = list(self.history)[self.n_first :]
        since = list(takewhile(lambda t: not t.query.is_full, reversed(learned)))
        spent = sum(t.cost_seconds + self._overhead for t in since)
        paid = spent / float(self.belief.seconds(row)[0] + self._overhead)
        if not self._asked_in_full:
            return paid >= RULES.anchored
        every = self.recipe.verify_every or 0
        is_trusted = self.is_proven and len(since) >= every
        return paid >= (RULES.trusted if is_trusted else RULES.unproven)

    def _searched(self) -> Proposal:
        # Once some are confirmed near the end, the rest of the time is for full evaluations.
        left, spent = self._seconds_left, self.budget.seconds_spent / self.budget.n_workers
        is_confirmed = self.n_confirmed > 0 and left is not None and left < spent
        is_only_full = self.gives_up_subsets or is_confirmed
        shares = (1.0,) if is_only_full else self.sizes.shares
        acquisition = "improvement" if self.gives_up_subsets else self.recipe.acquisition
        pending = self.history.pending
        belief = self.belief
        if pending:
            encoded = self.inputs.encode(t.query.configuration for t in pending)
            s = np.array([float(self.sizes.s(t.query.subset)) for t in pending])
            rows = self.inputs.at(encoded, s)
            if shares == (1.0,):
                rows = rows[s == 1]
            belief = belief.with_outcomes_drawn(rows, self.rng)
        best = float(self.standing.mean.min()) if len(self.standing) else 0.0
        search = Search(
            self.inputs,
            belief,
            sizes=np.asarray(self.sizes.s(shares)),
            evaluated=self.standing.candidates,
            best=best,
            rng=self.rng,
        )
        found = search.run(acquisition, self._overhead)
        models = search.models() if acquisition != "improvement" else {}
        reason = "improve" if acquisition == "improvement" else "search"
        # Expected improvement would explore unseen corners at the price of full evaluations.
        if acquisition != "improvement" and (
            found.gains.max() < RULES.least_gain or search.entropy < RULES.least_entropy
        ):
            for trial in self.standing.trials[: RULES.verified]:
                configuration = trial.query.configuration
                if configuration not in self._asked_in_full and self._fits(configuration, 1.0):
                    return Proposal(Query(configuration), "verify", _VERIFY, models)
        for query in self._queries(found, shares):
            return Proposal(query, reason, _SOUGHT[acquisition], models)
        if self.history.pending:
            raise NotYet
        name = self.inputs.candidates.space.name
        raise SpaceExhausted(
            f"nothing is left to ask for in space {name!r} that is new and fits into the budget"
        )

    def _queries(self, found: ScoredCandidate, shares: tuple[float, ...]) -> Iterator[Query]:
        decoded: dict[int, Configuration | None] = {}
        fits = self._fitting(found.candidates, shares)
        for row, level in found.best_first():
            if not fits[row, level]:
                continue
            if row not in decoded:
                decoded[row] = self.inputs.candidates.decode(found.candidates, row)
            configuration, share = decoded[row], shares[level]
            if configuration is not None and self._is_upwards(configuration, share):
                yield self.recipe.subsets.query(configuration, share, self.history)

    def _is_upwards(self, configuration: Configuration, share: float) -> bool:
        """Whether none is pending, and the query is larger than earlier ones or on a new subset."""
        if any(t.query.configuration == configuration for t in self.history.pending):
            return False
        largest = self._largest.get(configuration, 0.0)
        if share != largest:
            return share > largest
        failed = self._failed_at.get(configuration, 0.0)
        n_asked = self._times_asked[configuration, share]
        return failed < share and n_asked < self.recipe.subsets.most(share)

    def _fits(self, configuration: Configuration, share: float) -> bool:
        return bool(self._fitting(self.inputs.encode([configuration]), (share,))[0, 0])

    def _fitting(self, candidates: Candidates, shares: tuple[float, ...]) -> NDArray[np.bool_]:
        """Which sizes of C candidates are likely to end in time, shape (C, M)."""
        if self._seconds_left is None:
            return np.ones((len(candidates), len(shares)), dtype=np.bool_)
        at_sizes = (self.inputs.at(candidates, float(s)) for s in self.sizes.s(shares))
        seconds = np.column_stack([self.belief.seconds(rows) for rows in at_sizes])
        return seconds <= self._seconds_left

    @property
    def _seconds_left(self) -> float | None:
        left = self.budget.seconds_left
        return None if left is None else left / self.budget.n_workers

    @property
    def _overhead(self) -> float:
        """Seconds in addition to an evaluation: recent asks, and dispatch to a worker."""
        last = self.budget.last_ask_seconds[-RULES.last_asks :]
        return RULES.dispatch_seconds + (median(last) if last else 0.0)

    @cached_property
    def _asked_in_full(self) -> set[Configuration]:
        return {t.query.configuration for t in self.history if t.query.is_full}

    @cached_property
    def _largest(self) -> dict[Configuration, float]:
        return _largest_shares(self.history)

    @cached_property
    def _times_asked(self) -> Counter[tuple[Configuration, float]]:
        return Counter((t.query.configuration, t.query.subset) for t in self.history)

    @cached_property
    def _failed_at(self) -> dict[Configuration, float]:
        return _largest_shares(self.history.failed)


def _largest_shares(trials: Iterable[Trial]) -> dict[Configuration, float]:
    largest: dict[Configuration, float] = {}
    for t in trials:
        configuration = t.query.configuration
        largest[configuration] = max(largest.get(configuration, 0.0), t.query.subset)
    return largest
