"""GP_f and GP_c: the belief in learning curves and costs.

Parameters are refitted now and then; every ask conditions on all curves. Curves are learned as
scores, and higher scores are better.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log
from typing import Any, Literal, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from prefect_tune.optimizers.acquisitions.expected_improvement import expected_improvement
from prefect_tune.optimizers.methods.bapi.costs import CostModel, Rates
from prefect_tune.optimizers.methods.bapi.curves import CurveObservations, LearningCurve
from prefect_tune.optimizers.methods.bapi.declaration import Settings, Sites
from prefect_tune.optimizers.space.candidate_space import Candidates
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.surrogates.curve_kernel import CurveKernel, Decay
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.kernel import RBF, ConstantNoise, Matern52, Parameter
from prefect_tune.optimizers.surrogates.log_posterior import log_posterior_value
from prefect_tune.optimizers.surrogates.monotone import MonotoneProcess, at_times, site_times
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs, conditional_inputs
from prefect_tune.optimizers.trials.objective import Objective

ScoreKind = Literal["auto", "log", "raw"]
"""Kind of scores: minus the logarithm of the distance from the least possible loss, minus the loss,
or the likelier of the two given the observations."""

_ROWS = 200
"""Number of held-out rows to assume if it is unknown."""


@dataclass(frozen=True, slots=True)
class Scores:
    """A monotone map between losses and scores.

    `lower` is the least possible loss. `offset` is added to the distance from it, so that a perfect
    loss has a finite score. It is None if scores are negative losses.
    """

    lower: float = 0.0
    offset: float | None = None

    @classmethod
    def of(cls, objective: Objective, kind: ScoreKind) -> Self:
        """Return the scores of an objective, with an offset of half a misclassified row.

        Losses without finite bounds are scored as they are.
        """
        width = objective.upper - objective.lower
        if kind == "raw" or not isfinite(width):
            return cls()
        return cls(objective.lower, 0.5 * width / (objective.n_held_out or _ROWS))

    @classmethod
    def all_of(cls, objective: Objective, kind: ScoreKind) -> tuple[Self, ...]:
        """Return the candidate scales, at least one."""
        log, raw = cls.of(objective, "log"), cls.of(objective, "raw")
        return (log, raw) if kind == "auto" and log != raw else (cls.of(objective, kind),)

    @property
    def kind(self) -> ScoreKind:
        """The scale of the scores."""
        return "raw" if self.offset is None else "log"

    def log_slopes(self, losses: Array) -> Array:
        """Return ln |d score / d loss| of each loss."""
        return np.zeros_like(losses) if self.offset is None else self.of_losses(losses)

    def of_losses(self, losses: Array) -> Array:
        """Return the scores of losses."""
        if self.offset is None:
            return -losses
        return -np.log(np.maximum(losses - self.lower, 0.0) + self.offset)

    def of_loss(self, loss: float) -> float:
        """Return the score of one loss."""
        return float(self.of_losses(np.array([loss]))[0])

    def losses(self, scores: Array) -> Array:
        """Return the losses of scores, clipped at the least possible loss."""
        if self.offset is None:
            return -scores
        return self.lower + np.maximum(np.exp(-scores) - self.offset, 0.0)

    def loss_of_gain(self, gain: Array, score: float) -> Array:
        """Return the reduction of the loss by small gains over a score, to first order."""
        return gain if self.offset is None else gain * float(np.exp(-score))


Epochs = int | NDArray[np.intp]


@dataclass(frozen=True)
class CurveBelief:
    """Scores over configurations and the share of a training done, the last input.

    Attributes:
        sites: Rule that chooses places on queried curves where slopes are known not to be negative.
    """

    process: MonotoneProcess
    t_max: int
    rates: Rates | None
    scores: Scores
    bounds: tuple[float, float]
    sites: Sites | None

    def at(self, inputs: Array, epochs: Epochs) -> Array:
        """Return inputs followed by the share of the training done, shape (m, width + 1)."""
        t = np.broadcast_to(np.asarray(epochs) / self.t_max, len(inputs))
        return np.column_stack([inputs, t])

    def curve(self, row: Array, *, is_known: bool = False) -> Array:
        """Return the expected loss of one row after each epoch, never rising."""
        rows = self.at(np.repeat(row, self.t_max, axis=0), np.arange(1, self.t_max + 1))
        process = self.process
        if not is_known and self.sites is not None:
            sites = at_times(self.at(row, 1), row.shape[1], site_times(self.t_max))
            process = process.with_sites(sites, only_falling=self.sites == "falling")
        mean, _ = process.predict(rows)
        return np.clip(self.scores.losses(np.maximum.accumulate(mean)), *self.bounds)

    def predict(self, inputs: Array, epochs: Epochs) -> tuple[Array, Array]:
        """Return means and deviations of scores, shape (m,)."""
        return self.process.predict(self.at(inputs, epochs))

    def outcome(self, inputs: Array, epochs: Epochs) -> tuple[Array, Array]:
        """Return means and deviations of observed scores, noise included, shape (m,)."""
        mean, deviation = self.predict(inputs, epochs)
        noise = self.process.noise_variance(self.at(inputs, epochs)) * self.process.scale**2
        return mean, np.sqrt(deviation**2 + noise)

    def improvement(self, inputs: Array, epochs: Epochs, best: float) -> Array:
        """Return the expected improvement of scores over `best`, shape (m,)."""
        mean, deviation = self.predict(inputs, epochs)
        return expected_improvement(-mean, deviation, -best)

    def seconds(self, inputs: Array) -> Array:
        """Return seconds of an epoch, shape (m,); 1 before any is known."""
        return np.ones(len(inputs)) if self.rates is None else self.rates.seconds(inputs)


_NOISE = Parameter("noise variance", log(1e-3), log(1e-5), log(0.3), (log(1e-3), 1.5))
_MOST_SITES = 120
_ITERATIONS = 30
_FEW_POINTS = 40
"""Number of points below which parameters are fitted at every plan."""
_FIT_EVERY = 3
_RESTART_EVERY = 6
"""Interval, in fits, at which a fit draws its start and chooses the scores again."""
_GROWN = 1.15
_LEAST_DEVIATION = 1e-4


def _lengthscale(name: str, n: int) -> Parameter:
    """Prior ln l ~ N(sqrt 2 + ln(d) / 2, 3) in [0.05, 50] (Hvarfner et al. 2024)."""
    mean = 2**0.5 + 0.5 * log(n)
    return Parameter(name, min(mean, log(2.0)), log(0.05), log(50.0), (mean, 3**0.5))


def curve_inputs(space: Space, settings: Settings) -> PipelineInputs:
    """Return the inputs of a space, with the priors of curves."""
    return conditional_inputs(space, _lengthscale, RBF if settings.within == "rbf" else Matern52)


class CurveLearner:
    """Learns beliefs of one space; stores no observations."""

    def __init__(self, space: Space, objective: Objective, settings: Settings, t_max: int) -> None:
        self.inputs = curve_inputs(space, settings)
        self._space, self._objective = space, objective
        self._settings, self._t_max = settings, t_max
        self._scores = Scores.all_of(objective, settings.score)
        self._bounds = objective.lower, objective.upper
        of_time = Decay(has_tail=settings.has_tail)
        self._kernel = CurveKernel(self.inputs.within, self.inputs.width, of_time)
        self._noise = ConstantNoise(_NOISE)
        self._costs = CostModel(self.inputs, settings.cost)

    def learn(
        self, curves: Sequence[LearningCurve], memo: Mapping[str, Any], rng: Generator
    ) -> tuple[CurveBelief, dict[str, Any]]:
        """Return the belief for a plan, and its parameters as JSON values for the memo.

        While points are few, parameters are fitted at every plan, as in the paper. Later they are
        fitted at every third plan, and whenever the points have grown by 15 %.
        """
        n_plans, fitted = memo.get("n_plans", 0), memo.get("n_fitted", 0)
        n = len(self._observations(curves, memo).losses)
        is_due = n < _FEW_POINTS or n_plans % _FIT_EVERY == 0 or n > _GROWN * fitted
        kept = {k: memo[k] for k in ("thetas", "score", "n_fitted", "n_fits") if k in memo}
        if is_due or not kept:
            kept = self._fitted(curves, memo, rng)
        costs = memo.get("costs")
        rates = self._costs.rates(curves, None if costs is None else np.array(costs), rng)
        kept["costs"] = costs if rates is None else rates.process.theta.tolist()
        kept["n_plans"] = n_plans + 1
        return self.recall(curves, kept), kept

    def recall(self, curves: Sequence[LearningCurve], memo: Mapping[str, Any]) -> CurveBelief:
        """Return the belief with earlier parameters, conditioned on the current curves."""
        seen, scores = self._observations(curves, memo), self.scores(memo)
        targets = scores.of_losses(seen.losses)
        process = GaussianProcess.given(
            self._kernel,
            self._theta(memo, scores),
            seen.inputs,
            targets,
            noise=self._noise,
            scale=_deviation(targets),
        )
        sites = self._settings.sites
        monotone = MonotoneProcess.of(process, self._sites(curves), only_falling=sites == "falling")
        costs = memo.get("costs")
        rates = None if costs is None else self._costs.rates(curves, np.array(costs))
        return CurveBelief(monotone, self._t_max, rates, scores, self._bounds, sites)

    def scores(self, memo: Mapping[str, Any]) -> Scores:
        """Return the scores chosen by the last fit, or the default ones."""
        return next((s for s in self._scores if s.kind == memo.get("score")), self._scores[0])

    def trains_in_epochs(self, candidates: Candidates) -> NDArray[np.bool_]:
        """Return which candidates have an iterative model, shape (n,)."""
        last = self._space.steps[-1]
        is_iterative = np.array([a.id in self._objective.iterative for a in last.algorithms])
        if last.fixed:
            return np.full(len(candidates), is_iterative[0])
        return is_iterative[candidates.algorithms[:, -1]]

    def _fitted(
        self, curves: Sequence[LearningCurve], memo: Mapping[str, Any], rng: Generator
    ) -> dict[str, Any]:
        n_fits = memo.get("n_fits", 0)
        seen = self._observations(curves, memo)
        is_few, thetas = len(seen.losses) < _FEW_POINTS, dict(memo.get("thetas", {}))
        is_thorough = is_few or n_fits % _RESTART_EVERY == 0
        tried = self._scores if is_thorough else (self.scores(memo),)
        evidence = {}
        for scores in tried:
            targets = scores.of_losses(seen.losses)
            process = GaussianProcess.fit(
                self._kernel,
                seen.inputs,
                targets,
                rng=rng,
                noise=self._noise,
                scale=_deviation(targets),
                warm_start=np.array(thetas[scores.kind]) if scores.kind in thetas else None,
                n_restarts=int(is_thorough),
                max_iterations=_ITERATIONS,
            )
            thetas[scores.kind] = process.theta.tolist()
            evidence[scores.kind] = self._evidence(process, scores, seen.losses)
        return {
            "thetas": thetas,
            "score": max(evidence, key=lambda kind: evidence[kind]),
            "n_fitted": len(seen.losses),
            "n_fits": n_fits + 1,
        }

    def _evidence(self, process: GaussianProcess, scores: Scores, losses: Array) -> float:
        value = log_posterior_value(
            self._kernel, process.theta, process.inputs, process.standardised, noise=self._noise
        )
        return value + float(scores.log_slopes(losses).sum() - len(losses) * log(process.scale[0]))

    def _theta(self, memo: Mapping[str, Any], scores: Scores) -> Array:
        theta = memo.get("thetas", {}).get(scores.kind)
        if theta is not None:
            return np.array(theta)
        return np.array([p.start for p in (*self._kernel.parameters, *self._noise.parameters)])

    def _observations(
        self, curves: Sequence[LearningCurve], memo: Mapping[str, Any]
    ) -> CurveObservations:
        return CurveObservations.of(
            curves,
            self.inputs,
            self._kernel,
            self._theta(memo, self.scores(memo)),
            objective=self._objective,
            n_points=self._settings.n_points,
            t_max=self._t_max,
        )

    def _sites(self, curves: Sequence[LearningCurve]) -> Array:
        """Places where slopes are known not to be negative: unfinished curves, the best first."""
        if self._settings.sites is None:
            return np.empty((0, self.inputs.width + 1))
        times = site_times(self._t_max)
        open_curves = [c for c in curves if c.epochs and not c.is_closed and c.is_iterative]
        best_first = sorted(open_curves, key=lambda c: (not c.is_pending, c.loss))
        chosen = best_first[: _MOST_SITES // len(times)]
        if not chosen:
            return np.empty((0, self.inputs.width + 1))
        candidates = self.inputs.encode(c.configuration for c in chosen)
        return at_times(self.inputs.at(candidates, 1.0), self.inputs.width, times)


def _deviation(scores: Array) -> float:
    return max(float(scores.std()), _LEAST_DEVIATION)
