"""Search for the candidate and size with the most information per second (equation 7).

The information is about the location of the minimum. All sizes of a candidate are scored at once.
All candidates, draws of the parameters and rounds use the same random numbers, so that scores can
be compared. The paper uses DIRECT and CMA-ES instead (section 3.4), which search a box, but a space
of pipelines also has paths and categories.
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
    """C candidates, and M sizes of each candidate with scores, shape (C, M) each."""

    candidates: Candidates
    sizes: Array
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
        sizes: Values of s in the first round, shape (M,), and by default in all rounds.
        is_continuous: Whether later rounds draw values of s near the best value.
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
        is_continuous: bool = False,
        leaders: Candidates,
        best: float,
        overhead: float,
        rng: Generator,
    ) -> None:
        self._inputs, self._belief, self._acquisition = inputs, belief, acquisition
        self._sizes, self._is_continuous, self._rng = sizes, is_continuous, rng
        self._overhead, self._best = overhead, best
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
        candidates, levels = self._pool, self._sizes
        sizes, scores = np.tile(levels, (len(candidates), 1)), self._scores(candidates, levels)
        for width in RULES.widths:
            order = np.argsort(-scores.max(axis=1), kind="stable")[: RULES.near]
            origins = candidates[np.repeat(order, RULES.near)]
            near = moved(self._inputs, origins, np.full((len(origins), 1), width), self._rng)
            if self._is_continuous:
                best = sizes.flat[int(scores.argmax())]
                levels = np.clip(self._rng.normal(best, width, len(levels)), 0.0, 1.0)
            if len(near):
                candidates = candidates.joined(near)
                sizes = np.concatenate([sizes, np.tile(levels, (len(near), 1))])
                scores = np.concatenate([scores, self._scores(near, levels)])
        return ScoredCandidates(candidates, sizes, scores)

    def _seek_minimizer(self) -> None:
        at_one = self._inputs.at(self._pool, 1.0)
        joint = [process.joint(at_one) for process in self._belief.processes]
        draws = []
        for mean, covariance in joint:
            root = np.tril(cholesky(covariance, 1e-8 * float(np.diag(covariance).mean())))
            steps = self._rng.standard_normal((len(at_one), RULES.n_thompson))
            draws.append((mean + root @ steps).T)
        n = min(RULES.n_representers, len(at_one))
        improvements = self._log_improvements(at_one)
        rows = choose_representers(np.array(draws), improvements, n, self._rng)
        normals = whitened_normals(n, RULES.n_normals, self._rng)
        self._representers, self._at_one = self._pool[rows], at_one[rows]
        self._minimizers = [
            Minimizer.of(mean[rows, 0], covariance[np.ix_(rows, rows)], normals)
            for mean, covariance in joint
        ]

    def _log_improvements(self, inputs: Array) -> Array:
        """Return log expected improvements for each draw of the parameters, shape (K, n)."""
        predicted = [process.predict(inputs) for process in self._belief.processes]
        return np.array([log_expected_improvement(m, d, self._best) for m, d in predicted])

    def _scores(self, candidates: Candidates, sizes: Array) -> Array:
        inputs, m = self._inputs.at(candidates, 1.0), len(sizes)
        if self._acquisition == "improvement":
            seconds = self._belief.seconds(inputs) + self._overhead
            return (logsumexp(self._log_improvements(inputs), axis=0) - np.log(seconds))[:, None]
        at_sizes = np.repeat(inputs, m, axis=0)
        at_sizes[:, -1] = np.tile(sizes, len(inputs))
        phi = self._belief.basis.functions(sizes)
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
