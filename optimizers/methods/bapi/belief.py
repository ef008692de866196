"""GP_f and GP_c: the models of learning curves and of the run time of an epoch.

The parameters are refitted once enough new trials have ended, and each ask conditions the models on
the current curves. The models predict scores, which are transformed losses; higher scores are
better.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from prefect_tune.optimizers.methods.bapi.curves import (
    MOST_POINTS,
    N_POINTS,
    LearningCurve,
    chosen_epochs,
    largest_informative_loss,
    most_telling,
)
from prefect_tune.optimizers.methods.declarations import BapiOptions
from prefect_tune.optimizers.models.curve_kernel import CurveKernel, Decay
from prefect_tune.optimizers.models.gaussian_process import GaussianProcess
from prefect_tune.optimizers.models.inputs import conditional_inputs
from prefect_tune.optimizers.models.kernels import (
    RBF,
    Kernel,
    Matern52,
    Noise,
    Parameter,
)
from prefect_tune.optimizers.models.monotone import MonotoneProcess, at_times
from prefect_tune.optimizers.models.seconds import PER_ROWS
from prefect_tune.optimizers.search.maximize import is_refitted
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.vectors import Array, Candidates
from prefect_tune.optimizers.trials.objective import Objective


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of losses: minus the logarithm of the distance from the lowest possible loss.

    Attributes:
        lower: Lowest possible loss.
        width: Range of the losses, which is the unit of the distance.
        offset: Number added to the distance so that a perfect loss has a finite score; None if the
            scores are negated losses.
    """

    lower: float = 0.0
    width: float = 1.0
    offset: float | None = None

    @classmethod
    def of(cls, objective: Objective) -> Self:
        """Return the scores for an objective. The offset is the loss of half a misclassified row.

        If the losses have no finite bounds, scores are negated losses.
        """
        width = objective.upper - objective.lower
        if not isfinite(width):
            return cls()
        n_rows = (objective.n_held_out or PER_ROWS) * (objective.n_folds or 1)
        return cls(objective.lower, width, 0.5 / n_rows)

    def scores(self, losses: ArrayLike) -> Array:
        """Return the scores of losses, in the same shape."""
        losses = np.asarray(losses, dtype=np.float64)
        if self.offset is None:
            return -losses
        return -np.log(np.maximum(losses - self.lower, 0.0) / self.width + self.offset)

    def losses(self, scores: Array) -> Array:
        """Return the losses with these scores, clipped at the lowest possible loss."""
        if self.offset is None:
            return -scores
        return self.lower + self.width * np.maximum(np.exp(-scores) - self.offset, 0.0)


Epochs = int | NDArray[np.intp]


def site_times(t_max: int) -> Array:
    """Return the times t of a curve's sites: the first epoch and the last."""
    return np.array([1 / t_max, 1.0])


@dataclass(frozen=True)
class CurveBelief:
    """Models of the scores and of the run time per epoch.

    Attributes:
        process: Gaussian process of scores, over configurations and the completed fraction of the
            epochs, which is the last input.
        costs: Gaussian process of seconds per epoch (paper) or log seconds per epoch; None before
            any run time is known.
        least_rate: Fewest seconds per epoch so far.
        t_max: Number of epochs in a full training run.
        scores: Conversion between losses and scores.
        bounds: Lowest and highest possible loss.
        is_paper: Whether the variant is the paper's.
    """

    process: MonotoneProcess
    costs: GaussianProcess | None
    least_rate: float
    t_max: int
    scores: Scores
    bounds: tuple[float, float]
    is_paper: bool

    def at(self, inputs: Array, epochs: Epochs) -> Array:
        """Return inputs with the completed fraction as the last column, shape (m, width + 1)."""
        t = np.broadcast_to(np.asarray(epochs) / self.t_max, len(inputs))
        return np.column_stack([inputs, t])

    def curve(self, row: Array, *, is_known: bool = False) -> Array:
        """Return the expected loss after each epoch, which never rises, shape (t_max,).

        `row` contains the inputs of one configuration, shape (1, width). `is_known` tells whether
        the belief already includes the configuration's curve.
        """
        rows = self.at(np.repeat(row, self.t_max, axis=0), np.arange(1, self.t_max + 1))
        process = self.process
        if self.is_paper and not is_known:
            own = at_times(self.at(row, 1), row.shape[1], site_times(self.t_max))
            process = MonotoneProcess.of(process.process, np.vstack([process.sites, own]))
        mean, _ = process.predict(rows)
        return np.clip(self.scores.losses(np.maximum.accumulate(mean)), *self.bounds)

    def predict(self, inputs: Array, epochs: Epochs) -> tuple[Array, Array]:
        """Return means and standard deviations of scores after `epochs`, shape (m,) each."""
        return self.process.predict(self.at(inputs, epochs))

    def outcome(self, inputs: Array, epochs: Epochs) -> tuple[Array, Array]:
        """Return means and standard deviations of observed scores, with noise, shape (m,) each."""
        mean, deviation = self.predict(inputs, epochs)
        noise = self.process.process.noise_variance(self.at(inputs, epochs))
        return mean, np.sqrt(deviation**2 + noise * self.process.scale**2)

    def seconds(self, inputs: Array) -> Array:
        """Return the predicted seconds per epoch, shape (m,); 1 before any run time is known.

        The predictions are medians (in the paper, means). The paper's process has a prior mean of
        0, so predictions far from the data are raised to the fewest seconds observed.
        """
        if self.costs is None:
            return np.ones(len(inputs))
        mean, _ = self.costs.predict(inputs)
        return np.maximum(mean, self.least_rate) if self.is_paper else np.exp(mean)


_NOISE = Parameter("noise variance", log(1e-3), log(1e-5), log(0.3), (log(1e-3), 1.5))


def _lengthscale(name: str, n: int) -> Parameter:
    """Return a lengthscale l in [0.05, 50], ln l ~ N(sqrt 2 + ln(d) / 2, 3) (Hvarfner et al. 2024).

    `n` is the number of dimensions d.
    """
    mean = 2**0.5 + 0.5 * log(n)
    return Parameter(name, min(mean, log(2.0)), log(0.05), log(50.0), (mean, 3**0.5))


class CurveLearner:
    """Learns beliefs about one space. The learner stores no observations."""

    def __init__(
        self, space: Space, objective: Objective, options: BapiOptions, t_max: int
    ) -> None:
        self._space, self._objective, self._t_max = space, objective, t_max
        self._is_paper = options.is_paper
        stationary = RBF if options.is_paper else Matern52
        self.inputs = conditional_inputs(space, _lengthscale, stationary)
        self._of_time = Decay(has_tail=not options.is_paper)
        self._kernel = CurveKernel(self.inputs.within, self.inputs.width, self._of_time)
        self._noise = Noise(_NOISE)
        self._scores = Scores() if options.is_paper else Scores.of(objective)

    def learn(
        self, curves: Sequence[LearningCurve], memo: Mapping[str, Any], rng: Generator
    ) -> tuple[CurveBelief, dict[str, Any]]:
        """Return the belief for a plan, and the parameters as JSON values for the memo.

        The parameters are refitted whenever the number of trials has grown by a tenth or, in the
        paper's variant, for every plan.
        """
        n_trials = sum(len(c.trials) for c in curves)
        kept = {k: memo[k] for k in ("theta", "costs", "n_fitted") if k in memo}
        if self._is_paper or is_refitted(n_trials, kept.get("n_fitted", 0)):
            costs = self._timed(curves, memo, rng)
            kept = {
                "theta": self._scored(curves, memo, rng).theta.tolist(),
                "costs": None if costs is None else costs.theta.tolist(),
                "n_fitted": n_trials,
            }
        return self.recall(curves, kept), kept

    def recall(self, curves: Sequence[LearningCurve], memo: Mapping[str, Any]) -> CurveBelief:
        """Return the belief with the parameters in `memo`, conditioned on the current curves."""
        process, is_paper = self._scored(curves, memo), self._is_paper
        return CurveBelief(
            process=MonotoneProcess.of(process, self._sites(curves)),
            costs=self._timed(curves, memo),
            least_rate=min((c.rate for c in curves if c.rate is not None), default=1.0),
            t_max=self._t_max,
            scores=self._scores,
            bounds=(self._objective.lower, self._objective.upper),
            is_paper=is_paper,
        )

    def trains_in_epochs(self, candidates: Candidates) -> NDArray[np.bool_]:
        """Return which candidates have an iterative model, shape (n,)."""
        last = self._space.steps[-1]
        is_iterative = np.array([a.id in self._objective.iterative for a in last.algorithms])
        if last.fixed:
            return np.full(len(candidates), is_iterative[0])
        return is_iterative[candidates.algorithms[:, -1]]

    def _scored(
        self, curves: Sequence[LearningCurve], memo: Mapping[str, Any], rng: Generator | None = None
    ) -> GaussianProcess:
        """Return GP_f, the process of scores, with the parameters in `memo`.

        If `rng` is given, the parameters are fitted, starting from the parameters in `memo`.
        """
        theta = _theta(memo.get("theta"), self._kernel, self._noise)
        observed = self._observed(curves, theta)
        return _process(self._kernel, self._noise, theta, observed, rng=rng)

    def _timed(
        self, curves: Sequence[LearningCurve], memo: Mapping[str, Any], rng: Generator | None = None
    ) -> GaussianProcess | None:
        """Return GP_c, the process of run times; see `_scored`.

        The process models seconds with mean 0 (paper) or log seconds.
        """
        timed = [(c.configuration, c.rate) for c in most_telling(curves) if c.rate is not None]
        if not timed:
            return None
        inputs = self.inputs.of(self.inputs.encode(c for c, _ in timed))
        targets, mean = np.array([rate for _, rate in timed]), 0.0
        if not self._is_paper:
            targets = np.log(targets)
            mean = float(targets.mean())
        kernel, noise = self.inputs.kernel, Noise()
        theta = _theta(memo.get("costs"), kernel, noise)
        return _process(kernel, noise, theta, (inputs, targets), mean=mean, rng=rng)

    def _observed(self, curves: Sequence[LearningCurve], theta: Array) -> tuple[Array, Array]:
        """Return the inputs, shape (n, width + 1), and scores, shape (n,), of curve points."""
        curves = most_telling(curves)
        p, q = len(self._kernel.parameters), len(self._of_time.parameters)
        known = [c for c in curves if c.epochs and not c.is_infeasible]
        n_points = min(N_POINTS, MOST_POINTS // max(len(known), 1))
        noise = float(np.exp(theta[p]))
        chosen = {
            epochs: chosen_epochs(
                epochs,
                n_points,
                self._t_max,
                of_time=self._of_time,
                theta=theta[p - q : p],
                noise=noise,
            )
            for epochs in {c.epochs for c in known}
        }
        rows = [(c, e, c.loss_at(e)) for c in known for e in chosen[c.epochs]]
        # Failed and infeasible configurations get the worst loss, so that similar ones are avoided.
        worst = max((c.losses[0] for c in curves if c.epochs), default=0.0)
        useless = [c for c in curves if c.is_infeasible or (c.has_failed and not c.epochs)]
        rows += [(c, self._t_max, worst) for c in useless]
        candidates = self.inputs.encode(c.configuration for c, _, _ in rows)
        losses = np.array([loss for _, _, loss in rows])
        largest = largest_informative_loss(losses, self._objective)
        inputs = self.inputs.at(candidates, np.array([e for _, e, _ in rows]) / self._t_max)
        return inputs, self._scores.scores(np.minimum(losses, largest))

    def _sites(self, curves: Sequence[LearningCurve]) -> Array:
        """Return the inputs at which slopes are constrained: both ends of each unfinished curve.

        Only the paper's variant constrains slopes.
        """
        going = [c for c in curves if c.epochs and not c.is_closed and c.is_iterative]
        if not going or not self._is_paper:
            return np.empty((0, self.inputs.width + 1))
        candidates = self.inputs.encode(c.configuration for c in most_telling(going))
        rows = self.inputs.at(candidates, 1.0)
        return at_times(rows, self.inputs.width, site_times(self._t_max))


def _theta(known: Sequence[float] | None, kernel: Kernel, noise: Noise) -> Array:
    return np.array(known or [p.start for p in (*kernel.parameters, *noise.parameters)])


def _process(
    kernel: Kernel,
    noise: Noise,
    theta: Array,
    observed: tuple[Array, Array],
    *,
    mean: float | None = None,
    rng: Generator | None = None,
) -> GaussianProcess:
    inputs, targets = observed
    center = float(targets.mean()) if mean is None else mean
    scale = float(np.sqrt(np.mean((targets - center) ** 2)))
    if rng is not None:
        theta = GaussianProcess.fit(
            kernel,
            inputs,
            targets,
            rng=rng,
            mean=mean,
            noise=noise,
            scale=scale,
            warm_start=theta,
            n_restarts=1,
        ).theta
    return GaussianProcess.given(
        kernel, theta, inputs, targets, mean=mean, noise=noise, scale=scale
    )
