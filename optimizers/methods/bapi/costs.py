"""Costs of training: seconds of an epoch by configuration, and of what comes before it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from statistics import median
from typing import Literal

import numpy as np

from prefect_tune.optimizers.methods.bapi.curves import LearningCurve, prefix_of
from prefect_tune.optimizers.space.configuration import Choice, Configuration
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.kernel import Array, Constant, Kernel, Parameter, Product
from prefect_tune.optimizers.surrogates.noise import ConstantNoise
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs, Priors
from prefect_tune.optimizers.surrogates.stationary import RBF, Matern52

CostKind = Literal["log_rate", "linear"]
"""ln of seconds per epoch, or the paper's kernel: linear in epochs, of mean 0."""

_ITERATIONS = 15
_MOST_RATES = 150
"""That are learned from, the newest."""
_MOST_VARIANCE = 1.0
"""Of ln seconds, in deviations, that counts: or unknown regions would be priced out."""
_LEAST_SHARE = 1 / 3
"""Of the smallest rate seen, below which the paper's model is not believed."""


def _lengthscale(name: str, n: int) -> Parameter:
    mean = 0.5 + 0.5 * log(n)
    start = min(max(mean, log(0.1)), log(20.0))
    return Parameter(name, start, log(0.1), log(20.0), (mean, 1.0))


def rate_inputs(inputs: PipelineInputs, kind: CostKind) -> PipelineInputs:
    """Return the inputs of a space with the priors of rates."""
    stationary = RBF if kind == "linear" else Matern52
    return PipelineInputs(inputs.candidates, "conditional", Priors(_lengthscale), stationary)


@dataclass(frozen=True)
class Rates:
    """Predicted seconds of an epoch.

    Attributes:
        process: Of ln seconds, or of seconds.
        kind: Which of the two.
        least: Smallest rate seen.
    """

    process: GaussianProcess
    kind: CostKind
    least: float

    def seconds(self, inputs: Array) -> Array:
        """Return seconds of an epoch, shape (m,), all positive: of ln seconds, the lognormal mean.

        The paper's process has mean 0, and predicts no seconds far from data: it gets a floor.
        """
        mean, deviation = self.process.predict(inputs)
        if self.kind == "linear":
            return np.maximum(mean, _LEAST_SHARE * self.least)
        scale = float(self.process.scale[0])
        variance = np.minimum(deviation**2, _MOST_VARIANCE * scale**2)
        return np.exp(mean + 0.5 * variance)


class CostModel:
    """Learns rates of one space; it keeps no observation.

    Args:
        inputs: Of the space.
        kind: Of the model.
    """

    def __init__(self, inputs: PipelineInputs, kind: CostKind) -> None:
        self.inputs, self.kind = rate_inputs(inputs, kind), kind
        amplitude = Constant(Parameter("variance", 0.0, log(0.05), log(20.0), (0.0, 1.0)))
        within: Kernel | None = self.inputs.within
        self._kernel = Product([amplitude, *([within] if within else [])])
        noise = (log(0.02), 1.5)
        self._noise = ConstantNoise(Parameter("noise", noise[0], log(1e-4), 0.0, noise))

    def fit(
        self, curves: Sequence[LearningCurve], theta: Array | None, rng: np.random.Generator
    ) -> Rates | None:
        """Return rates learned from curves, from an earlier theta on; None if none is known."""
        return self._rates(curves, theta, rng)

    def recall(self, curves: Sequence[LearningCurve], theta: Array) -> Rates | None:
        """Return rates with an earlier theta."""
        return self._rates(curves, theta, None)

    def _rates(
        self, curves: Sequence[LearningCurve], theta: Array | None, rng: np.random.Generator | None
    ) -> Rates | None:
        timed = [(c, c.rate) for c in curves if c.rate is not None][-_MOST_RATES:]
        if not timed:
            return None
        inputs = self.inputs.of(self.inputs.encode(c.configuration for c, _ in timed))
        rates = np.array([rate for _, rate in timed])
        targets = rates if self.kind == "linear" else np.log(rates)
        mean = 0.0 if self.kind == "linear" else float(targets.mean())
        # As of a deviation of 0, so that a single rate has an uncertainty too.
        scale = float(np.sqrt(np.mean((targets - mean) ** 2))) + 1e-6
        if rng is None:
            assert theta is not None  # noqa: S101 - the caller's duty
            process = GaussianProcess.given(
                self._kernel, theta, inputs, targets, mean=mean, noise=self._noise, scale=scale
            )
        else:
            process = GaussianProcess.fit(
                self._kernel,
                inputs,
                targets,
                rng=rng,
                mean=mean,
                noise=self._noise,
                scale=scale,
                warm_start=theta,
                max_iterations=_ITERATIONS,
            )
        return Rates(process, self.kind, float(rates.min()))


@dataclass(frozen=True)
class Overheads:
    """Seconds besides training: steps before the model, loading checkpoints, and losing them.

    Attributes:
        prefixes: By path up to the model, the median seconds of making it.
        made: Prefixes, with their values, that were made in this study.
        thaw: Median seconds of loading a checkpoint.
        lost: Share of the checkpoints that were not found when they were wanted.
        model_step: Name of the step of models, behind the prefix.
    """

    prefixes: Mapping[tuple[str, ...], float]
    made: frozenset[tuple[object, ...]]
    thaw: float
    lost: float
    model_step: str

    @classmethod
    def of(cls, curves: Sequence[LearningCurve]) -> "Overheads":
        """Learn them from what was told."""
        by_path: dict[tuple[str, ...], list[float]] = {}
        made = set()
        for curve in curves:
            if curve.prefix_seconds is not None:
                by_path.setdefault(_path(curve.prefix), []).append(curve.prefix_seconds)
            if curve.epochs:
                made.add(curve.prefix)
        loads = [x for curve in curves for x in curve.load_seconds]
        found = [x for curve in curves for x in curve.resumptions]
        return cls(
            {path: median(seconds) for path, seconds in by_path.items()},
            frozenset(made),
            median(loads) if loads else 0.0,
            1 - sum(found) / len(found) if found else 0.0,
            curves[0].model_step if curves else "",
        )

    def seconds(self, configuration: Configuration, done: int, rate: float) -> float:
        """Return the seconds besides those of new epochs.

        A checkpoint is lost with the probability with which others were, and then the epochs done
        are trained again.

        Args:
            configuration: What to train.
            done: Epochs that it was trained for.
            rate: Seconds of an epoch.
        """
        if done:
            return self.thaw + self.lost * done * rate
        prefix = prefix_of(configuration, self.model_step)
        return 0.0 if prefix in self.made else self.prefixes.get(_path(prefix), 0.0)


def _path(prefix: tuple[tuple[str, Choice], ...]) -> tuple[str, ...]:
    return tuple(choice.algorithm for _, choice in prefix)
