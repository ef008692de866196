"""Search for the candidate and size with the most information per second (equation 7).

The information is about the location of the minimum. All sizes of a candidate are scored at once.
All candidates, draws of the parameters and rounds use the same random numbers, so that scores can
be compared. The paper uses DIRECT and CMA-ES instead (section 3.4).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.special import logsumexp

from prefect_tune.optimizers.methods.fabolas.belief import Belief
from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.methods.fabolas.subsets import Acquisition
from prefect_tune.optimizers.models.fidelity_kernel import latents_of
from prefect_tune.optimizers.models.inputs import PipelineInputs
from prefect_tune.optimizers.models.log_posterior import cholesky
from prefect_tune.optimizers.search.entropy import (
    Minimizer,
    choose_representers,
    divergence_from_uniform,
    information_gain,
    whitened_normals,
)
from prefect_tune.optimizers.search.improvement import log_expected_improvement
from prefect_tune.optimizers.search.maximize import moved, pool_around
from prefect_tune.optimizers.space.vectors import Array, Candidates


@dataclass(frozen=True, slots=True)
class ScoredCandidates:
    """C candidates and their scores at M sizes, shape (C, M)."""

    candidates: Candidates
    scores: Array

    def best_first(self) -> Iterator[tuple[int, int]]:
        """Yield the candidate number and size number of each score, best score first."""
        for place in np.argsort(-self.scores, axis=None, kind="stable"):
            yield divmod(int(place), self.scores.shape[1])


class Search:
    """The search of one ask.

    Args:
        inputs: Inputs of the space.
        belief: Belief that includes pending evaluations (see `Belief.imagining`).
        acquisition: Acquisition to maximize.
        sizes: Values of s for the allowed sizes, shape (M,).
        leaders: Candidates with results, ordered by predicted loss.
        best: Lowest predicted loss of the leaders.
        overhead: Seconds of an evaluation that do not depend on the size.
        rng: Random generator of the search.
    """

    def __init__(
        self,
        inputs: PipelineInputs,
        belief: Belief,
        acquisition: Acquisition,
        *,
        sizes: Array,
        leaders: Candidates,
        best: float,
        overhead: float,
        rng: Generator,
    ) -> None:
        self._inputs, self._belief, self._acquisition = inputs, belief, acquisition
        self._sizes, self._overhead, self._best, self._rng = sizes, overhead, best, rng
        n = RULES.near * RULES.n_representers
        self._pool = pool_around(inputs, leaders[: RULES.near], n, rng)
        self._minimizers: list[Minimizer] = []
        if acquisition != "improvement":
            self._seek_minimizer()

    def models(self) -> dict[str, float]:
        """Return the probability that a model is in the best pipeline, by model id."""
        step = self._inputs.candidates.space.steps[-1]
        if step.fixed or not self._minimizers:
            return {}
        probabilities = np.mean([m.probabilities for m in self._minimizers], axis=0)
        models = self._representers.algorithms[:, -1]
        chances = np.bincount(models, probabilities, len(step.algorithms))
        return {a.id: round(float(p), 4) for a, p in zip(step.algorithms, chances, strict=True)}

    def run(self) -> ScoredCandidates:
        """Return the candidates from all rounds with their scores."""
        candidates, scores = self._pool, self._scores(self._pool)
        for width in RULES.widths:
            order = np.argsort(-scores.max(axis=1), kind="stable")[: RULES.near]
            origins = candidates[np.repeat(order, RULES.near)]
            near = moved(self._inputs, origins, np.full((len(origins), 1), width), self._rng)
            if len(near):
                candidates = candidates.joined(near)
                scores = np.concatenate([scores, self._scores(near)])
        return ScoredCandidates(candidates, scores)

    def _seek_minimizer(self) -> None:
        at_one = self._inputs.at(self._pool, 1.0)
        joint = [process.joint(at_one) for process in self._belief.processes]
        draws, improvements = [], []
        for process, (mean, covariance) in zip(self._belief.processes, joint, strict=True):
            variance = np.maximum(np.diag(covariance), 1e-12)
            root = np.tril(cholesky(covariance, 1e-8 * float(variance.mean())))
            steps = self._rng.standard_normal((len(at_one), RULES.n_thompson))
            draws.append((mean + root @ steps).T)
            best = self._best / float(process.scale[0])
            improvements.append(log_expected_improvement(mean[:, 0], np.sqrt(variance), best))
        n = min(RULES.n_representers, len(at_one))
        rows = choose_representers(np.array(draws), np.array(improvements), n, self._rng)
        normals = whitened_normals(n, RULES.n_normals, self._rng)
        self._representers, self._at_one = self._pool[rows], at_one[rows]
        self._minimizers = [
            Minimizer.of(mean[rows, 0], covariance[np.ix_(rows, rows)], normals)
            for mean, covariance in joint
        ]

    def _scores(self, candidates: Candidates) -> Array:
        inputs, m = self._inputs.at(candidates, 1.0), len(self._sizes)
        if self._acquisition == "improvement":
            each = [
                log_expected_improvement(*process.predict(inputs), self._best)
                for process in self._belief.processes
            ]
            seconds = self._belief.seconds(inputs) + self._overhead
            return (logsumexp(each, axis=0) - np.log(seconds))[:, None]
        at_sizes = np.repeat(inputs, m, axis=0)
        at_sizes[:, -1] = np.tile(self._sizes, len(inputs))
        phi = self._belief.basis.functions(self._sizes)
        values = np.zeros((len(inputs), m))
        for process, minimizer in zip(self._belief.processes, self._minimizers, strict=True):
            latents = latents_of(process, inputs, self._at_one)
            noise = np.maximum(process.noise_variance(at_sizes[:m]), 1e-9)
            gain = information_gain(minimizer, latents, phi, noise)
            if self._acquisition == "divergence_per_cost":
                gain = divergence_from_uniform(minimizer, gain)
            values += gain / len(self._minimizers)
        if self._acquisition == "gain":
            return values
        return values / (self._belief.seconds(at_sizes).reshape(-1, m) + self._overhead)
