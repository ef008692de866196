"""The first evaluations: successive halving over small sizes, then one full run of the winner."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from prefect_tune.optimizers.methods.fabolas.recipe import Sizes
from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.methods.rungs import (
    Begin,
    Done,
    Promote,
    Wait,
    is_decided,
    promotable,
    ranked,
)
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.trial import Trial


@dataclass(frozen=True, slots=True)
class BeginAlgorithm(Begin[float]):
    """Begin a configuration of one of the last step's algorithms, possibly with defaults."""

    algorithm: int
    has_defaults: bool = False


Step = BeginAlgorithm | Promote[float] | Wait | Done


@dataclass(frozen=True)
class FirstDesign:
    """Successive halving over small sizes; the winner, the anchor, is run once on all rows.

    Its progress is read from the trials in the order of asking. A configuration first requested at
    the lowest share is on the first rung. It moves up when it is requested at the next share. A
    rung promotes its best half once it has as many results as planned in `counts`. Failed trials
    rank last, since a larger subset may cure them, but trials over the time or memory limit are not
    promoted. While a rung is undecided, a free worker begins one more configuration, up to twice
    the planned number. Each algorithm of the last step begins with its defaults, which are often
    nearly the best values.
    """

    shares: tuple[float, ...]
    counts: tuple[int, ...]
    algorithms: tuple[int, ...] = (0,)

    @classmethod
    def of(
        cls,
        sizes: Sizes,
        *,
        n_first: int = 10,
        n_algorithms: int = 1,
        seed: int = 0,
        has_anchor: bool = True,
    ) -> Self:
        """Return the design for data of these sizes.

        The first rung has `n_first` configurations, or two per algorithm of the last step if that
        is more; each higher rung has half as many. `seed` decides the order of algorithms, and
        `has_anchor` whether the winner is evaluated on all rows.
        """
        order = np.random.default_rng(seed).permutation(n_algorithms)
        algorithms = tuple(int(a) for a in order)
        n = max(n_first, 2 * n_algorithms)
        if sizes.is_single:
            return cls((1.0,), (n,), algorithms)
        shares = _rung_shares(sizes)
        counts = [n]
        for _ in shares[1:]:
            counts.append(_half(counts[-1]))
        if not has_anchor:
            return cls(shares, tuple(counts), algorithms)
        return cls((*shares, 1.0), (*counts, 1), algorithms)

    @property
    def most_begun(self) -> int:
        """Largest number of configurations it begins, reached with many workers."""
        return 2 * self.counts[0]

    def next(self, history: History, *, may_begin: bool = True) -> Step:
        """Return the next step, given all trials; `may_begin` allows more configurations."""
        rungs = self._rungs(history)
        n_begun = len(rungs[0])
        if may_begin and n_begun < self.counts[0]:
            return self._begin(n_begun)
        if len(rungs) > 1 and len(rungs[-1]) >= self.counts[-1]:
            return Done()
        goal = self.counts[0] if may_begin else n_begun
        is_whole = True  # whether the rung below has no more runs to promote
        for k, (rung, above) in enumerate(pairwise(rungs)):
            is_enough = is_whole and is_decided(rung, goal)
            is_settled = is_whole and is_decided(rung)
            goal = min(self.counts[k + 1], _half(goal))
            if is_enough and len(above) < goal:
                for trial in self._best(rungs, k, history):
                    return Promote(trial.query.configuration, self.shares[k + 1])
            is_whole = is_settled or len(above) >= goal
        if is_whole:
            return Done()
        return self._begin(n_begun) if may_begin and n_begun < self.most_begun else Wait()

    def _begin(self, n_begun: int) -> BeginAlgorithm:
        n = len(self.algorithms)
        return BeginAlgorithm(
            self.shares[0], self.algorithms[n_begun % n], has_defaults=1 < n > n_begun
        )

    def _rungs(self, history: History) -> list[list[Trial]]:
        rungs: list[list[Trial]] = [[] for _ in self.shares]
        places: dict[Configuration, int] = {}
        last = len(rungs) - 1
        for trial in history:
            query = trial.query
            place = places.setdefault(query.configuration, -1)
            # Any rung may supply the full evaluation if the rungs above have failed.
            rung = last if query.subset == 1.0 and place >= 0 else place + 1
            if place < last and query.subset == self.shares[rung]:
                rungs[rung].append(trial)
                places[query.configuration] = rung
            elif place < 0:
                places[query.configuration] = last  # not begun by this design, so never on a rung
        return rungs

    def _best(
        self, rungs: Sequence[Sequence[Trial]], rung: int, history: History
    ) -> Iterator[Trial]:
        """Runs of a rung to promote, the best first; none that ever failed for full data."""
        share = self.shares[rung + 1]
        gone = {t.query.configuration for t in history if t.query.subset >= share}
        told = [t for t in rungs[rung] if t.is_told]
        best = ranked(told, history)
        if share < 1.0:
            best = _promising(best, history)
            best += [t for t in told if t.failure and not t.failure.kind.is_hopeless]
        else:
            gone |= {t.query.configuration for each in rungs for t in each if t.failure}
            for lower in reversed(rungs[:rung]):
                best += ranked(lower, history)
        return promotable(best, gone)


@dataclass(frozen=True)
class ScatteredDesign:
    """`count` new configurations on small sizes and algorithms in turn, as in the paper."""

    shares: tuple[float, ...]
    count: int
    algorithms: tuple[int, ...] = (0,)

    @classmethod
    def of(cls, sizes: Sizes, *, n_first: int = 10, n_algorithms: int = 1, seed: int = 0) -> Self:
        """Return the design for data of these sizes, with arguments as in `FirstDesign.of`."""
        order = np.random.default_rng(seed).permutation(n_algorithms)
        shares = (1.0,) if sizes.is_single else _rung_shares(sizes)
        return cls(shares, n_first, tuple(int(a) for a in order))

    def next(self, history: History, *, may_begin: bool = True) -> Step:
        """Return the next step, with arguments as in `FirstDesign.next`."""
        n = len(history.asked)
        if not may_begin or n >= self.count:
            return Done()
        share = self.shares[n % len(self.shares)]
        return BeginAlgorithm(share, self.algorithms[n % len(self.algorithms)])


def _promising(best: Sequence[Trial], history: History) -> list[Trial]:
    """Runs with a loss nearer to the rung's best than to its worst, if there are at least four.

    Positive losses are compared by logarithm, since half of a rung may be on a plateau such as the
    loss of chance. Infeasible configurations are promoted only if all are infeasible.
    """
    feasible = [t for t in best if history.violation(t) <= 0] or list(best)
    losses = [t.loss for t in feasible if t.loss is not None]
    if len(losses) < RULES.promising_from:
        return feasible
    least, worst = min(losses), max(losses)
    most = (least * worst) ** 0.5 if least > 0 else (least + worst) / 2
    return [t for t in feasible if t.loss is not None and t.loss <= most]


def _half(count: int) -> int:
    return (count + 1) // 2


def _rung_shares(sizes: Sizes) -> tuple[float, ...]:
    shares = sizes.shares[:-1]
    if set(RULES.rung_shares) <= set(shares):
        return RULES.rung_shares
    # Shares are evenly spaced by logarithm; ties go to the smaller share.
    n = len(shares)
    return tuple(shares[k] for k in sorted({-((3 - n * j) // 6) for j in RULES.rung_sixths}))
