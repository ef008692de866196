"""Costs of training, and the remaining budget with the epochs it affords (B_r in the paper).

A model predicts the seconds of an epoch by configuration. The steps before training add overhead.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log
from statistics import fmean, mean, median
from typing import Literal

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.methods.bapi.curves import LearningCurve, prefix_of
from prefect_tune.optimizers.space.configuration import Choice, Configuration
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.kernel import (
    RBF,
    Constant,
    ConstantNoise,
    Kernel,
    Matern52,
    Parameter,
    Product,
)
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs, Priors

_LOOKS_A_STRETCH = 5
"""Shortest partial training, as a multiple of the planner's time for a check."""


def affordable(seconds: float, rate: float, *, done: int, target: int) -> int:
    """Return the epochs, up to `target`, reachable in `seconds` at a rate; 0 if none is new."""
    if seconds == inf:
        return target
    n = floor(seconds / rate)
    return min(target, done + n) if n >= 1 else 0


@dataclass(frozen=True, slots=True)
class RemainingBudget:
    """The rest of a budget, given all curves of the study in the order of their start."""

    budget: Budget
    curves: Collection[LearningCurve]

    @property
    def may_begin(self) -> bool:
        """Whether new configurations may be started."""
        return self.budget.trials_left != 0

    @property
    def seconds(self) -> float:
        """B_r in worker-seconds, including pending trainings; inf for no limit."""
        return inf if self.budget.seconds_left is None else self.budget.seconds_left

    @property
    def longest(self) -> float:
        """Seconds one training may take: one worker's share of the rest."""
        return self.seconds / max(self.budget.n_workers, 1)

    @property
    def spent_share(self) -> float:
        """Spent share of the budget, by seconds if limited, else by configurations."""
        budget = self.budget
        if budget.seconds_left is not None:
            total = budget.seconds_spent + max(budget.seconds_left, 0.0)
            return budget.seconds_spent / total if total > 0 else 1.0
        if budget.trials_left is None:
            return 0.0
        return len(self.curves) / (len(self.curves) + budget.trials_left)

    def epochs(self, done: int, target: int, *, rate: float, pending_seconds: float) -> int:
        """Return the epochs, up to `target`, affordable by predicted costs; 0 if none is new."""
        seconds = min(self.seconds - pending_seconds, self.longest)
        return affordable(seconds, rate, done=done, target=target)

    def epochs_by_measured_rates(self, configuration: Configuration | None, target: int) -> int:
        """Return the affordable epochs by measured rates, or all of them without any rate."""
        rates = {c.configuration: c.rate for c in self.curves if c.rate is not None}
        if not rates:
            return target if self.seconds > 0 else 0
        typical = mean(rates.values())
        left, rate, done = self.seconds, typical, 0
        for curve in self.curves:
            own = rates.get(curve.configuration, typical)
            if curve.is_pending:
                left -= own * max(curve.target - curve.done, 0)
            elif curve.configuration == configuration:
                rate, done = own, curve.done
        return affordable(min(left, self.longest), rate, done=done, target=target)

    def epochs_worth_a_look(self, configuration: Configuration | None, t_max: int) -> int:
        """Return the fewest epochs that last as long as five planner checks, or two per worker."""
        looks = self.budget.last_ask_seconds
        rates = {c.configuration: c.rate for c in self.curves if c.rate is not None}
        if not looks or not rates:
            return 1
        typical = float(np.median(list(rates.values())))
        rate = typical if configuration is None else rates.get(configuration, typical)
        least = fmean(looks) * max(_LOOKS_A_STRETCH, 2 * self.budget.n_workers)
        return ceil(min(least / max(rate, 1e-9), t_max))


CostKind = Literal["log_rate", "linear"]
"""A model of ln seconds per epoch, or the paper's kernel: linear in epochs, with mean 0."""

_ITERATIONS = 15
_MOST_RATES = 150
"""Largest number of rates to learn from; the newest ones are used."""
_MOST_VARIANCE = 1.0
"""Cap on the variance of ln seconds, so that unknown regions stay affordable."""
_LEAST_SHARE = 1 / 3
"""Floor of the paper's model, as a share of the smallest rate observed."""


def _lengthscale(name: str, n: int) -> Parameter:
    mean = 0.5 + 0.5 * log(n)
    start = min(max(mean, log(0.1)), log(20.0))
    return Parameter(name, start, log(0.1), log(20.0), (mean, 1.0))


@dataclass(frozen=True)
class Rates:
    """Predicted seconds of an epoch, by a process of seconds or ln seconds, at least `least`."""

    process: GaussianProcess
    kind: CostKind
    least: float

    def seconds(self, inputs: Array) -> Array:
        """Return positive seconds of an epoch, shape (m,); the lognormal mean for ln seconds.

        The paper's process has mean 0, so far from data its prediction is raised to a floor.
        """
        mean, deviation = self.process.predict(inputs)
        if self.kind == "linear":
            return np.maximum(mean, _LEAST_SHARE * self.least)
        scale = float(self.process.scale[0])
        variance = np.minimum(deviation**2, _MOST_VARIANCE * scale**2)
        return np.exp(mean + 0.5 * variance)


class CostModel:
    """Learns rates for one space; stores no observations."""

    def __init__(self, inputs: PipelineInputs, kind: CostKind) -> None:
        stationary = RBF if kind == "linear" else Matern52
        priors = Priors(_lengthscale)
        self.inputs = PipelineInputs(inputs.candidates, "conditional", priors, stationary)
        self.kind = kind
        amplitude = Constant()
        within: Kernel | None = self.inputs.within
        self._kernel = Product([amplitude, *([within] if within else [])])
        noise = (log(0.02), 1.5)
        self._noise = ConstantNoise(Parameter("noise", noise[0], log(1e-4), 0.0, noise))

    def rates(
        self, curves: Sequence[LearningCurve], theta: Array | None, rng: Generator | None = None
    ) -> Rates | None:
        """Return rates learned from curves, starting at `theta`, which is kept without an `rng`."""
        timed = [(c, c.rate) for c in curves if c.rate is not None][-_MOST_RATES:]
        if not timed:
            return None
        inputs = self.inputs.of(self.inputs.encode(c.configuration for c, _ in timed))
        rates = np.array([rate for _, rate in timed])
        targets = rates if self.kind == "linear" else np.log(rates)
        mean = 0.0 if self.kind == "linear" else float(targets.mean())
        # Adds a deviation of 0, so that even a single rate has an uncertainty.
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
    """Seconds in addition to training: steps before the model, and loading or losing checkpoints.

    Attributes:
        prefixes: Median seconds of computing a prefix, by path up to the model.
        made: Prefixes, with their values, computed in this study.
    """

    prefixes: Mapping[tuple[str, ...], float]
    made: frozenset[tuple[object, ...]]
    thaw: float
    lost: float
    model_step: str

    @classmethod
    def of(cls, curves: Sequence[LearningCurve]) -> "Overheads":
        """Estimate overheads from the curves so far."""
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
        """Seconds in addition to new epochs; a lost checkpoint costs the `done` epochs again."""
        if done:
            return self.thaw + self.lost * done * rate
        prefix = prefix_of(configuration, self.model_step)
        return 0.0 if prefix in self.made else self.prefixes.get(_path(prefix), 0.0)


def _path(prefix: tuple[tuple[str, Choice], ...]) -> tuple[str, ...]:
    return tuple(choice.algorithm for _, choice in prefix)
