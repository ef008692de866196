"""The belief in learning curves and in costs, learned from what was told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.acquisitions.expected_improvement import expected_improvement
from prefect_tune.optimizers.methods.bapi.costs import CostModel, Rates
from prefect_tune.optimizers.methods.bapi.curves import LearningCurve
from prefect_tune.optimizers.methods.bapi.options import Settings
from prefect_tune.optimizers.methods.bapi.points import chosen_epochs, thinned
from prefect_tune.optimizers.methods.bapi.scores import Scores
from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.optimizers.space.candidates import Candidates
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.surrogates.conditional import CORRELATION
from prefect_tune.optimizers.surrogates.curve_kernel import (
    CurveKernel,
    Decay,
    SquaredExponential,
)
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.kernel import Array, Parameter
from prefect_tune.optimizers.surrogates.monotone import MonotoneProcess
from prefect_tune.optimizers.surrogates.noise import ConstantNoise
from prefect_tune.optimizers.surrogates.nugget import Nugget
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs, Priors
from prefect_tune.optimizers.surrogates.slope_sites import at_times, site_times
from prefect_tune.optimizers.surrogates.stationary import RBF, Matern52
from prefect_tune.optimizers.trials.objective import Objective

__all__ = ["Belief", "Learner", "curve_inputs"]

Epochs = int | NDArray[np.intp]

_NOISE = Parameter("noise variance", log(1e-3), log(1e-5), log(0.3), (log(1e-3), 1.5))
_MODELS = Parameter("logit rho of the models", -2.0, -5.0, 5.0, (-2.0, 1.0))
_MOST_POINTS = 150
_MOST_SITES = 120
_ITERATIONS = 30
_FEW_POINTS = 40
"""Below so many, parameters are fitted at every plan."""
_FIT_EVERY = 3
_RESTART_EVERY = 6
_GROWN = 1.15
_LEAST_DEVIATION = 1e-4
_WORST = -4.0
"""Deviations below the mean at which scores are cut off: curves that diverge say no more."""


def _lengthscale(name: str, n: int) -> Parameter:
    """Prior ln l ~ N(sqrt 2 + ln(d) / 2, 3) in [0.05, 50] (sheet, 3.4; Hvarfner et al. 2024)."""
    mean = 2**0.5 + 0.5 * log(n)
    return Parameter(name, min(mean, log(2.0)), log(0.05), log(50.0), (mean, 3**0.5))


def curve_inputs(space: Space, settings: Settings) -> PipelineInputs:
    """Return the inputs of a space, with the priors of curves."""
    model = space.steps[-1].name
    priors = Priors(_lengthscale, lambda step: _MODELS if step == model else CORRELATION)
    stationary = RBF if settings.within == "rbf" else Matern52
    return PipelineInputs(CandidateSpace(space), "conditional", priors, stationary)


@dataclass(frozen=True)
class Belief:
    """Scores, minus losses, over configurations and the time trained.

    Attributes:
        process: Of scores; t is the last input.
        t_max: Epochs of a full training.
        rates: Of costs; None before any is known.
        scores: Their unit.
        bounds: Least and largest loss that the metric has.
        sites: Where slopes are known not to be negative, of curves that are asked about too; None
            for nowhere.
    """

    process: MonotoneProcess
    t_max: int
    rates: Rates | None
    scores: Scores
    bounds: tuple[float, float]
    sites: Literal["falling", "all"] | None

    def at(self, inputs: Array, epochs: Epochs) -> Array:
        """Return rows of inputs with the time trained behind them, shape (m, width + 1)."""
        t = np.broadcast_to(np.asarray(epochs) / self.t_max, len(inputs))
        return np.column_stack([inputs, t])

    def curve(self, row: Array, *, is_known: bool = False) -> Array:
        """Return the expected loss after each epoch, shape (t_max,), never rising.

        Args:
            row: Inputs of a configuration, shape (1, width).
            is_known: Whether its slopes have been looked at already.
        """
        epochs = np.arange(1, self.t_max + 1)
        rows = self.at(np.repeat(row, self.t_max, axis=0), epochs)
        process = self.process
        if not is_known and self.sites is not None:
            kernel, theta = process.process.kernel, process.process.theta
            assert isinstance(kernel, CurveKernel)  # noqa: S101 - the learner's
            times = site_times(kernel, theta, self.t_max)
            sites = at_times(self.at(row, 1), row.shape[1], times)
            process = process.with_sites(sites, only_falling=self.sites == "falling")
        mean, _ = process.predict(rows)
        falling: Array = np.clip(self.scores.losses(np.maximum.accumulate(mean)), *self.bounds)
        return falling

    def predict(self, inputs: Array, epochs: Epochs) -> tuple[Array, Array]:
        """Return means and deviations of scores, shape (m,)."""
        return self.process.predict(self.at(inputs, epochs))

    def outcome(self, inputs: Array, epochs: Epochs) -> tuple[Array, Array]:
        """Return means and deviations of scores as they are observed, shape (m,)."""
        mean, deviation = self.predict(inputs, epochs)
        noise = self.process.noise_variance(self.at(inputs, epochs)) * self.process.scale**2
        return mean, np.sqrt(deviation**2 + noise)

    def improvement(self, inputs: Array, epochs: Epochs, best: float) -> Array:
        """Return the expected improvement of scores on the best, shape (m,)."""
        mean, deviation = self.predict(inputs, epochs)
        return expected_improvement(-mean, deviation, -best)

    def seconds(self, inputs: Array) -> Array:
        """Return seconds of an epoch, shape (m,); 1 before any is known."""
        return np.ones(len(inputs)) if self.rates is None else self.rates.seconds(inputs)


class Learner:
    """Learns beliefs of one space; it keeps no observation.

    Args:
        space: The space.
        objective: What is minimised.
        settings: Of the method.
        t_max: Epochs of a full training.
    """

    def __init__(self, space: Space, objective: Objective, settings: Settings, t_max: int) -> None:
        self.inputs = curve_inputs(space, settings)
        self._space, self._iterative = space, objective.iterative
        self._settings, self._t_max = settings, t_max
        self.scores = Scores.of(objective, settings.score)
        self._bounds = objective.lower, objective.upper
        width, within = self.inputs.width, self.inputs.within
        is_rbf, tail = settings.of_time == "rbf", settings.has_tail
        of_time = SquaredExponential() if is_rbf else Decay(has_tail=tail)
        if settings.nugget and within is not None:
            within = Nugget(within, width)
        self._kernel = CurveKernel(within, width, of_time)
        self._noise = ConstantNoise(_NOISE)
        self._costs = CostModel(self.inputs, settings.cost)

    def learn(
        self, curves: Sequence[LearningCurve], memo: Mapping[str, Any], rng: np.random.Generator
    ) -> tuple[Belief, dict[str, Any]]:
        """Return the belief before a plan, and what of it is kept, as JSON values.

        Args:
            curves: At least one of them has a score, or has failed.
            memo: Of the last ask; may be empty.
            rng: Draws a start of the fit.
        """
        theta, n_plans = memo.get("theta"), memo.get("n_plans", 0)
        inputs, scores = self._points(curves, self._theta(memo))
        n, fitted = len(scores), memo.get("n_fitted", 0)
        is_few = n < _FEW_POINTS
        if theta is None or is_few or n_plans % _FIT_EVERY == 0 or n > _GROWN * fitted:
            n_fits = memo.get("n_fits", 0)
            process = GaussianProcess.fit(
                self._kernel,
                inputs,
                scores,
                rng=rng,
                noise=self._noise,
                scale=_deviation(scores),
                warm_start=None if theta is None else np.array(theta),
                n_restarts=int(is_few or n_fits % _RESTART_EVERY == 0),
                max_iterations=_ITERATIONS,
            )
            theta, fitted = process.theta.tolist(), n
            memo = {**memo, "n_fits": n_fits + 1}
        costs = memo.get("costs")
        rates = self._costs.fit(curves, None if costs is None else np.array(costs), rng)
        kept = {
            "theta": theta,
            "costs": costs if rates is None else rates.process.theta.tolist(),
            "n_plans": n_plans + 1,
            "n_fitted": fitted,
            "n_fits": memo.get("n_fits", 0),
        }
        return self.recall(curves, kept), kept

    def recall(self, curves: Sequence[LearningCurve], memo: Mapping[str, Any]) -> Belief:
        """Return the belief with the parameters of an earlier plan and the curves of now."""
        theta = self._theta(memo)
        inputs, scores = self._points(curves, theta)
        process = GaussianProcess.given(
            self._kernel, theta, inputs, scores, noise=self._noise, scale=_deviation(scores)
        )
        sites = self._settings.sites if self._settings.monotone else None
        monotone = MonotoneProcess.of(
            process, self._sites(curves, process), only_falling=sites == "falling"
        )
        costs = memo.get("costs")
        rates = None if costs is None else self._costs.recall(curves, np.array(costs))
        return Belief(monotone, self._t_max, rates, self.scores, self._bounds, sites)

    def trains_in_epochs(self, candidates: Candidates) -> NDArray[np.bool_]:
        """Return which candidates have a model that trains in epochs, shape (n,)."""
        last = self._space.steps[-1]
        is_iterative = np.array([a.id in self._iterative for a in last.algorithms])
        if last.fixed:
            return np.full(len(candidates), is_iterative[0])
        found: NDArray[np.bool_] = is_iterative[candidates.algorithms[:, -1]]
        return found

    def _theta(self, memo: Mapping[str, Any]) -> Array:
        if "theta" in memo:
            return np.array(memo["theta"])
        return np.array([p.start for p in (*self._kernel.parameters, *self._noise.parameters)])

    def _points(self, curves: Sequence[LearningCurve], theta: Array) -> tuple[Array, Array]:
        """Return the inputs, with t behind them, and scores that are learned from."""
        p = len(self._kernel.parameters)
        of_time = self._kernel.of_time
        q = len(of_time.parameters)
        noise = float(np.exp(theta[p]))
        known = [c for c in curves if c.epochs]
        chosen = {
            n: chosen_epochs(
                n,
                self._settings.n_points,
                self._t_max,
                of_time=of_time,
                theta=theta[p - q : p],
                noise=noise,
            )
            for n in {c.epochs for c in known}
        }
        epochs = [chosen[c.epochs] for c in known]
        is_thinned = thinned([len(e) for e in epochs], [c.loss for c in known], _MOST_POINTS)
        epochs = [e[-1:] if cut else e for e, cut in zip(epochs, is_thinned, strict=True)]
        rows = [(c, e, c.loss_at(e)) for c, es in zip(known, epochs, strict=True) for e in es]
        # A failure is as bad as the worst, at the end: its neighbourhood is avoided.
        worst = max((c.losses[0] for c in known), default=0.0)
        rows += [(c, self._t_max, worst) for c in curves if c.has_failed and not c.epochs]
        candidates = self.inputs.encode(c.configuration for c, _, _ in rows)
        t = np.array([e for _, e, _ in rows]) / self._t_max
        scores = self.scores.of_losses(np.array([y for _, _, y in rows]))
        deviation = _deviation(scores)
        floor = float(np.median(scores)) + _WORST * deviation
        return self.inputs.at(candidates, t), np.maximum(scores, floor)

    def _sites(self, curves: Sequence[LearningCurve], process: GaussianProcess) -> Array:
        """Return where slopes are known not to be negative: unfinished curves, the best first."""
        if not self._settings.monotone:
            return np.empty((0, self.inputs.width + 1))
        times = site_times(self._kernel, process.theta, self._t_max)
        open_curves = [c for c in curves if c.epochs and not c.is_closed and c.is_iterative]
        best_first = sorted(open_curves, key=lambda c: (not c.is_pending, c.loss))
        chosen = best_first[: _MOST_SITES // len(times)]
        if not chosen:
            return np.empty((0, self.inputs.width + 1))
        candidates = self.inputs.encode(c.configuration for c in chosen)
        return at_times(self.inputs.at(candidates, 1.0), self.inputs.width, times)


def _deviation(scores: Array) -> float:
    return max(float(scores.std()), _LEAST_DEVIATION)
