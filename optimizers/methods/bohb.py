"""BOHB: Hyperband with configurations drawn from kernel densities (Falkner, Klein and Hutter 2018).

`Hyperband` implements algorithm 1, the brackets. Algorithm 2 draws one configuration:

    if rand() < rho, return a random one        Bohb.draw
    b, the largest budget with enough results   Bohb.modeled, with failed runs among the bad
    eq. 2 and 3: l of the good, g of the bad    Bohb.modeled, KernelDensity.fit
    draw N_s samples from l', of widths b_w     Bohb.near, KernelDensity.sample
    return the sample of largest l(x) / g(x)    Bohb._by_model, KernelDensity.log_density

Departures from the paper:

- The prior is an additional component of each density, as in TPE.
- A kernel is uniform in the hyperparameters missing from its configuration, which BOHB imputes.
- g is fitted to all results that are not good.
- No configuration is proposed twice.
- Models that train in epochs and other models have separate densities (`halving.Ladder`).

Densities are relative to the prior, which is 1 everywhere, so inactive hyperparameters are skipped.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr, ndtri

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.declarations import BOHB
from prefect_tune.optimizers.methods.halving import Hyperband, Ladder, ranked
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.vectors import Array, Candidates, CandidateSpace
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial

_LEAST_WIDTH = 1e-3
"""Smallest width of a kernel in unit positions (BOHB's min_bandwidth)."""
_PRIOR_WIDTH = 12**-0.5
"""Standard deviation of the prior, used if fewer than two points have a hyperparameter."""


@dataclass(frozen=True)
class KernelDensity:
    """A mixture of product kernels and the prior (Falkner et al. 2018, section 3.2).

    Algorithms and categories have Aitchison-Aitken kernels, which replace a choice with a random
    choice at some probability. Numbers have Gaussian kernels truncated to [0, 1]. A kernel is
    uniform in the hyperparameters missing from its configuration. Unlike in BOHB, the prior is a
    component of the mixture, so no algorithm is excluded for lack of good results.

    Attributes:
        space: Space of the candidates.
        points: The n configurations at the centers of the kernels.
        active: Whether a configuration has a hyperparameter, shape (n, d).
        leaving: Probability that the algorithm of a step is replaced, shape (K,).
        widths: Replacement probabilities of categories and standard deviations of numbers, shape
            (d,). The widths follow Scott's rule, with Gini impurity as the deviation of choices.
    """

    space: CandidateSpace
    points: Candidates
    active: NDArray[np.bool_]
    leaving: Array
    widths: Array

    @classmethod
    def fit(cls, space: CandidateSpace, points: Candidates, dimension: int) -> "KernelDensity":
        """Return the density fitted to `points`, using `dimension` in Scott's rule."""
        factor = len(points) ** (-1 / (dimension + 4))
        active = space.active(points)
        units = space.snapped(points.units)
        sizes = space.sizes
        leaving = np.array([factor * _impurity(column) for column in points.algorithms.T])
        widths = np.empty(len(sizes))
        for j, size in enumerate(sizes):
            values = units[active[:, j], j]
            if len(values) < 2:
                widths[j] = factor * (1 - 1 / size if size else _PRIOR_WIDTH)
            else:
                widths[j] = factor * (_impurity(values) if size else values.std())
        widths, leaving = np.maximum(widths, _LEAST_WIDTH), np.maximum(leaving, _LEAST_WIDTH)
        return cls(space, Candidates(points.algorithms, units), active, leaving, widths)

    def log_density(self, candidates: Candidates) -> Array:
        """Return the logarithm of the density relative to the prior, shape (m,)."""
        units = self.space.snapped(candidates.units)
        both = self.space.active(candidates)[:, None, :] & self.active[None, :, :]
        logs = np.where(both, self._log_of_values(units), 0.0).sum(axis=2)
        for k, n_algorithms in enumerate(self._n_algorithms):
            same = candidates.algorithms[:, None, k] == self.points.algorithms[None, :, k]
            logs += _log_of_choice(same, self.leaving[k], n_algorithms)
        total = np.logaddexp(logsumexp(logs, axis=1), 0.0)
        return total - np.log(len(self.points) + 1)

    def sample(self, n: int, widening: float, rng: Generator) -> Candidates:
        """Return up to n runnable draws from the prior and from widened kernels."""
        rows = rng.integers(len(self.points) + 1, size=n)
        is_prior = rows == len(self.points)
        rows[is_prior] = 0
        algorithms = self.points.algorithms[rows].copy()
        for k, n_algorithms in enumerate(self._n_algorithms):
            leaves = is_prior | (rng.random(n) < widening * self.leaving[k])
            algorithms[leaves, k] = rng.integers(n_algorithms, size=int(leaves.sum()))
        uniform, v = rng.random((2, n, len(self.widths)))
        centers, widths = self.points.units[rows], widening * self.widths
        low, high = ndtr(-centers / widths), ndtr((1 - centers) / widths)
        of_number = np.clip(centers + widths * ndtri(low + v * (high - low)), 0.0, 1.0)
        of_category = np.where(v < widths, uniform, centers)
        near = np.where(self.space.sizes > 0, of_category, of_number)
        units = np.where(self.active[rows] & ~is_prior[:, None], near, uniform)
        algorithms = self.space.canonical_paths(algorithms)
        return Candidates(algorithms, units)[self.space.can_run(algorithms)]

    @property
    def _n_algorithms(self) -> list[int]:
        return [len(allowed) for allowed in self.space.allowed]

    def _log_of_values(self, units: Array) -> Array:
        centers = self.points.units[None, :, :]
        distances = (units[:, None, :] - centers) / self.widths
        mass = ndtr((1 - centers) / self.widths) - ndtr(-centers / self.widths)
        of_number = -0.5 * distances**2 - np.log(self.widths * mass * np.sqrt(2 * np.pi))
        sizes = np.maximum(self.space.sizes, 2)
        leaving = np.minimum(self.widths, 1 - 1 / sizes)
        of_category = _log_of_choice(units[:, None, :] == centers, leaving, sizes)
        return np.where(self.space.sizes > 1, of_category, of_number)


def _log_of_choice(
    same: NDArray[np.bool_], leaving: Array | np.float64, n_values: NDArray[np.intp] | int
) -> Array:
    other = leaving / n_values
    return np.log(np.where(same, 1 - leaving + other, other) * n_values)


def _impurity(values: Array | NDArray[np.intp]) -> float:
    """Return the Gini impurity of the values and one extra value, which keeps it positive."""
    _, counts = np.unique(values, return_counts=True)
    n = len(values) + 1
    return float(1 - ((counts / n) ** 2).sum() - 1 / n**2)


RANDOM_SHARE = 1 / 3
"""Fraction rho of the new configurations that is drawn from the prior."""
_GOOD_SHARE = 0.15
"""Fraction of a rung's results that counts as good."""
N_SAMPLES, WIDENING = 24, 3.0
"""Number N_s of samples per proposal, and factor b_w by which kernels are widened. With the paper's
64 samples, results were no better on recorded curves and worse in spaces with many paths."""
_MORE_RESULTS = 3
"""Number of results that the model needs beyond the number of dimensions of a configuration."""


class Bohb(Hyperband):
    """Hyperband that draws configurations from a model of the good results."""

    method: ClassVar[Method] = BOHB

    def draw(self, ladder: Ladder, rng: Generator) -> Configuration:
        """Return a new configuration of a ladder, or raise SpaceExhausted."""
        is_random = rng.random() < RANDOM_SHARE
        proposed = None if is_random else self._by_model(ladder, rng)
        if proposed is None:
            return super().draw(ladder, rng)
        self._drawn = "more similar to good results than to other results"
        return proposed

    def modeled(self, ladder: Ladder) -> tuple[list[Trial], list[Trial]] | None:
        """Return good and bad results on the highest rung with enough results; None if no rung has.

        A rung has enough results if its number of successful trials exceeds the largest dimension
        of a configuration by at least three. Results are sorted, best first.
        """
        met = {c.name: c.bound for c in self.objective.constraints}
        trials = [*self.history, *self.history.older.subsample(met)]
        dimension = _dimension(ladder.space)
        for level in reversed(ladder.rungs.levels):
            results = self.told(trials, ladder, level)
            best_first = ranked(results, self.history)
            if len(best_first) >= dimension + _MORE_RESULTS:
                n_good = max(dimension + 1, int(_GOOD_SHARE * len(best_first)))
                failed = [t for t in results if t.state == TrialState.FAILED]
                return best_first[:n_good], [*best_first[n_good:], *failed]
        return None

    def near(self, good: KernelDensity, rng: Generator) -> Candidates:
        """Return draws from the density of the good results, with widened kernels."""
        return good.sample(N_SAMPLES, WIDENING, rng)

    def _by_model(self, ladder: Ladder, rng: Generator) -> Configuration | None:
        if (split := self.modeled(ladder)) is None:
            return None
        space = ladder.candidates
        good, bad = (
            KernelDensity.fit(
                space,
                space.encode(t.query.configuration for t in trials),
                _dimension(ladder.space),
            )
            for trials in split
        )
        drawn = self.near(good, rng)
        ratio = good.log_density(drawn) - bad.log_density(drawn)
        ranked_draws = drawn[np.argsort(-ratio, kind="stable")]
        return next(space.new_configurations(ranked_draws, self.history.asked), None)


def _dimension(space: Space) -> int:
    """Return the largest dimension of a configuration, counting each choice of an algorithm."""
    return sum(
        (len(s.algorithms) > 1) + max(a.n_hyperparameters for a in s.algorithms)
        for s in space.searched
    )
