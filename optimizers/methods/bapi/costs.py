"""Costs of training, and B_r of algorithms 1, 2 and 4: the remaining budget and what it pays for.

Seconds are predicted of an epoch by configuration, and of what comes before it.
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
    Constant,
    ConstantNoise,
    Kernel,
    Parameter,
    Product,
)
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs, Priors
from prefect_tune.optimizers.surrogates.stationary import RBF, Matern52

_LOOKS_A_STRETCH = 5
"""Least time of a stretch, in looks of the planner, so that looks stay a small part of the time."""


def affordable(seconds: float, rate: float, *, done: int, target: int) -> int:
    """Return the epochs, up to a target, that a training reaches; 0 if not one more than is done.

    Args:
        seconds: Seconds the new epochs may take; inf for no end.
        rate: Seconds of an epoch.
        done: Epochs done.
        target: Most epochs, from the start of the training.
    """
    if seconds == inf:
        return target
    n = floor(seconds / rate)
    return min(target, done + n) if n >= 1 else 0


@dataclass(frozen=True, slots=True)
class RemainingBudget:
    """The rest of a budget.

    Attributes:
        budget: The budget at this ask.
        curves: All curves of the study, in the order of beginning.
    """

    budget: Budget
    curves: Collection[LearningCurve]

    @property
    def may_begin(self) -> bool:
        """Whether new configurations may be begun."""
        return self.budget.trials_left != 0

    @property
    def seconds(self) -> float:
        """B_r in worker-seconds, pending trainings included; inf for no end."""
        return inf if self.budget.seconds_left is None else self.budget.seconds_left

    @property
    def longest(self) -> float:
        """Seconds one training may take: one worker's part of those left."""
        return self.seconds / max(self.budget.n_workers, 1)

    @property
    def spent_share(self) -> float:
        """The spent share of the budget, by seconds if they are limited, else by configurations.

        If neither seconds nor new configurations are left, all of it is spent.
        """
        budget = self.budget
        if budget.seconds_left is not None:
            total = budget.seconds_spent + max(budget.seconds_left, 0.0)
            return budget.seconds_spent / total if total > 0 else 1.0
        if budget.trials_left is None:
            return 0.0
        return len(self.curves) / (len(self.curves) + budget.trials_left)

    def epochs(self, done: int, target: int, *, rate: float, pending_seconds: float) -> int:
        """Return the affordable epochs of a training by predicted costs; 0 if not one more.

        Args:
            done: Epochs done.
            target: Epochs the training is to reach.
            rate: Predicted seconds of an epoch.
            pending_seconds: Predicted seconds of the pending trainings, which are paid first.
        """
        seconds = min(self.seconds - pending_seconds, self.longest)
        return affordable(seconds, rate, done=done, target=target)

    def epochs_by_told_rates(self, configuration: Configuration | None, target: int) -> int:
        """Return the affordable epochs of a training before costs are learned; 0 if not one more.

        An epoch takes what the told epochs of its configuration took, or else the mean of the
        others. Before any rate is known, all epochs are affordable while anything is left.

        Args:
            configuration: The configuration; None for a new one.
            target: Epochs the training is to reach.
        """
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
        """Return the fewest epochs that take long compared with the looks of the planner.

        They take five looks, or two looks of each worker, because one planner serves them all.

        Args:
            configuration: The configuration, for its rate; None for a typical one.
            t_max: Epochs of a full training, the most that are returned.
        """
        looks = self.budget.last_ask_seconds
        rates = {c.configuration: c.rate for c in self.curves if c.rate is not None}
        if not looks or not rates:
            return 1
        typical = float(np.median(list(rates.values())))
        rate = typical if configuration is None else rates.get(configuration, typical)
        least = fmean(looks) * max(_LOOKS_A_STRETCH, 2 * self.budget.n_workers)
        return ceil(min(least / max(rate, 1e-9), t_max))


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
        """Return rates learned from curves, from an earlier theta on; None if none is known.

        Args:
            curves: All that were begun.
            theta: Parameters of an earlier fit.
            rng: Source of randomness; None to keep these parameters.
        """
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
