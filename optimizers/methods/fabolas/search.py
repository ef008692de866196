"""The next query: the candidate and size with the most information about the minimiser per cost.

All sizes of a candidate are scored at once. Candidates, hyperparameter samples and rounds share the
same draws. The paper maximises by DIRECT and CMA-ES (section 3.4).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.acquisitions.entropy import (
    Minimiser,
    choose_representers,
    divergence_from_uniform,
    whitened_normals,
)
from prefect_tune.optimizers.acquisitions.expected_improvement import log_expected_improvement
from prefect_tune.optimizers.acquisitions.gaussian_search import moved, pool_around
from prefect_tune.optimizers.methods.fabolas.belief import SubsetBelief
from prefect_tune.optimizers.methods.fabolas.recipe import Acquisition
from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.space.candidate_space import Candidates
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.surrogates.log_posterior import cholesky
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs


@dataclass(frozen=True, slots=True)
class ScoredCandidate:
    """C candidates and their scores at M sizes, shape (C, M); -inf for excluded queries."""

    candidates: Candidates
    scores: Array
    gains: Array

    def best_first(self) -> Iterator[tuple[int, int]]:
        """Yield candidate and size by falling score."""
        for place in np.argsort(-self.scores, axis=None, kind="stable"):
            row, level = divmod(int(place), self.scores.shape[1])
            if self.scores[row, level] == -np.inf:
                return
            yield row, level


class Search:
    """One ask's search of a belief in which pending outcomes are imagined.

    `sizes` are s of the allowed sizes, rising to 1, shape (M,). `evaluated` are candidates with
    results, the best predicted first, and `best` is the least standardised prediction among them.
    `representers` are candidates that stand for the space; None for expected improvement.
    """

    def __init__(
        self,
        inputs: PipelineInputs,
        belief: SubsetBelief,
        *,
        sizes: Array,
        evaluated: Candidates,
        best: float,
        rng: Generator,
    ) -> None:
        self._inputs, self._belief, self._sizes = inputs, belief, sizes
        self._evaluated, self._best, self._rng = evaluated, best, rng
        self._minimisers: list[Minimiser] = []
        self.representers = evaluated[:0]

    @property
    def entropy(self) -> float:
        """Mean entropy of the minimiser over the samples, in nats."""
        return float(np.mean([m.entropy for m in self._minimisers]))

    @property
    def probabilities(self) -> Array:
        """Mean p_min of the representers over the samples, shape (R,)."""
        return np.mean([m.probabilities for m in self._minimisers], axis=0)

    def models(self) -> dict[str, float]:
        """Return the probability that the best pipeline has a model algorithm, by its id."""
        step = self._inputs.candidates.space.steps[-1]
        if step.fixed or not len(self.representers):
            return {}
        chances = np.bincount(
            self.representers.algorithms[:, -1], self.probabilities, len(step.algorithms)
        )
        return {a.id: round(float(p), 4) for a, p in zip(step.algorithms, chances, strict=True)}

    def run(self, acquisition: Acquisition, overhead: float) -> ScoredCandidate:
        """Return the scored candidates of all rounds; `overhead` has the seconds of an ask."""
        if acquisition != "improvement":
            self._seek_minimiser()
        best = self._evaluated[: RULES.near]
        start = pool_around(self._inputs, best, RULES.candidates, self._rng)
        start = start.joined(self.representers)
        found = self._scored(self._known(start), acquisition, overhead)
        for width in RULES.widths:
            order = np.argsort(-found.scores.max(axis=1), kind="stable")[: RULES.refined]
            origins = found.candidates[np.repeat(order, RULES.moves // RULES.refined)]
            near = moved(self._inputs, origins, np.full((len(origins), 1), width), self._rng)
            near = self._known(near)
            if len(near):
                more = self._scored(near, acquisition, overhead)
                found = ScoredCandidate(
                    found.candidates.joined(more.candidates),
                    np.concatenate([found.scores, more.scores]),
                    np.concatenate([found.gains, more.gains]),
                )
        return found

    def _seek_minimiser(self) -> None:
        best = self._evaluated[: RULES.near]
        pool = self._known(pool_around(self._inputs, best, RULES.pool, self._rng))
        at_one = self._inputs.at(pool, 1.0)
        draws, improvements = [], []
        for sample in self._belief.samples:
            mean, covariance = sample.joint(at_one)
            variance = np.maximum(np.diag(covariance), 1e-12)
            root = np.tril(cholesky(covariance, 1e-8 * float(variance.mean())))
            steps = self._rng.standard_normal((len(pool), RULES.n_thompson))
            draws.append((mean[:, None] + root @ steps).T)
            improvements.append(log_expected_improvement(mean, np.sqrt(variance), self._best))
        n = min(RULES.n_representers, len(pool))
        rows = choose_representers(np.array(draws), np.array(improvements), n, self._rng)
        self.representers = pool[rows]
        self._at_one = at_one[rows]
        normals = whitened_normals(len(rows), RULES.n_draws, self._rng)
        self._minimisers = [
            Minimiser.of(*sample.joint(self._at_one), normals) for sample in self._belief.samples
        ]

    def _scored(
        self, candidates: Candidates, acquisition: Acquisition, overhead: float
    ) -> ScoredCandidate:
        inputs = self._inputs.at(candidates, 1.0)
        if acquisition == "improvement":
            scores = np.full((len(candidates), len(self._sizes)), -np.inf)
            logs = self._improvement(inputs)
            seconds = self._belief.seconds(inputs) + overhead
            scores[:, -1] = logs - np.log(seconds) if self._belief.costs else logs
            gains = np.zeros_like(scores)
            gains[:, -1] = np.exp(logs)
            return ScoredCandidate(candidates, scores, gains)
        gains = np.zeros((len(candidates), len(self._sizes)))
        values = np.zeros_like(gains)
        for sample, minimiser in zip(self._belief.samples, self._minimisers, strict=True):
            gain = sample.gains(minimiser, self._at_one, inputs, self._belief.basis, self._sizes)
            gains += gain / len(self._minimisers)
            is_divergence = acquisition == "divergence_per_cost"
            value = divergence_from_uniform(minimiser, gain) if is_divergence else gain
            values += value / len(self._minimisers)
        if acquisition == "gain":
            return ScoredCandidate(candidates, values, gains)
        return ScoredCandidate(candidates, values / (self._seconds(inputs) + overhead), gains)

    def _seconds(self, inputs: Array) -> Array:
        n, m = len(inputs), len(self._sizes)
        at_sizes = np.repeat(inputs, m, axis=0)
        at_sizes[:, -1] = np.tile(self._sizes, n)
        return self._belief.seconds(at_sizes).reshape(n, m)

    def _improvement(self, inputs: Array) -> Array:
        each = []
        for sample in self._belief.samples:
            mean, variance = sample.predict(inputs)
            each.append(log_expected_improvement(mean, np.sqrt(variance), self._best))
        return np.logaddexp.reduce(np.array(each), axis=0) - np.log(len(each))

    def _known(self, candidates: Candidates) -> Candidates:
        return candidates[self._belief.knows(self._inputs.at(candidates, 1.0))]
