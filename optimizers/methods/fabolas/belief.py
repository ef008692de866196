"""Observations, and Gaussian processes of losses and run times (equation 6, section 3.4).

By default, a process uses the most likely parameters. `variant=paper` uses the priors of section
3.4, and draws the parameters of both processes with emcee (Foreman-Mackey et al. 2013), whose
walkers start near the most likely parameters at each ask.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, log
from typing import Any, Self

import numpy as np
from emcee import EnsembleSampler, State
from numpy.random import Generator

from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.methods.fabolas.subsets import (
    COST,
    PAPER_COST,
    UNKNOWN_RANGE,
    Sizes,
    Strategy,
)
from prefect_tune.optimizers.models.fidelity_kernel import Basis, FidelityKernel
from prefect_tune.optimizers.models.forest import LossMean, OlderMean
from prefect_tune.optimizers.models.gaussian_process import FIT_ITERATIONS, GaussianProcess
from prefect_tune.optimizers.models.inputs import PipelineInputs, conditional_inputs
from prefect_tune.optimizers.models.kernels import NOISE, FallingNoise, Noise, Parameter
from prefect_tune.optimizers.models.log_posterior import log_posterior_value
from prefect_tune.optimizers.models.seconds import LEAST_SECONDS
from prefect_tune.optimizers.search.maximize import is_refitted
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.vectors import Array, Candidates
from prefect_tune.optimizers.trials.earlier import OlderTrials
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.optimizers.trials.trial import Trial

_LARGEST_LOSS = float(np.finfo(np.float32).max)  # squares of larger losses might overflow


def _lengthscale(name: str, n: int) -> Parameter:
    """Return a lengthscale with ln l^2 ~ N(2 (ln 0.5 + ln(d) / 4), 2^2), in [-10, 2 + ln d].

    `n` is the number of dimensions d.
    """
    mean = log(0.5) + 0.25 * log(n)
    return Parameter(name, mean, -5.0, 1.0 + 0.5 * log(n), (mean, 1.0))


def _flat_lengthscale(name: str, n: int) -> Parameter:  # noqa: ARG001
    """Return a lengthscale of the paper, with ln l^2 uniform in [-10, 2]."""
    return Parameter(name, 0.0, -5.0, 1.0, (0.0, inf))


_FLAT_NOISE = replace(NOISE, prior=(NOISE.start, inf))


def _log_horseshoe(theta: float) -> float:
    """Return the log density of theta = ln sigma^2 under the paper's prior of sigma^2.

    The density of a horseshoe with scale 0.1 has no closed form. ln(1 + 3 (0.1 / x)^2) lies between
    its bounds (Carvalho et al. 2010, theorem 1.1).
    """
    return float(np.log(np.log1p(3 * (0.1 / np.exp(theta)) ** 2)) + theta)


def pipeline_inputs(space: Space, *, is_of_paper: bool = False) -> PipelineInputs:
    """Return the inputs of a space, with the priors of Fabolas and its reference methods."""
    return conditional_inputs(space, _flat_lengthscale if is_of_paper else _lengthscale)


@dataclass(frozen=True, slots=True)
class Observations:
    """Trials that have ended, ordered by number.

    Attributes:
        trials: The n trials that have ended.
        candidates: Configurations of the trials.
        inputs: Inputs of the processes with s as the last column, shape (n, width + 1).
        losses: Losses, shape (n,). A failed trial has the worst known loss, or nan before any loss
            is known.
        log_seconds: Logarithm of the seconds per fold without cache, shape (n,).
        older: Observations of earlier runs.
    """

    trials: tuple[Trial, ...]
    candidates: Candidates
    inputs: Array
    losses: Array
    log_seconds: Array
    older: OlderTrials

    @classmethod
    def of(
        cls,
        history: History,
        sizes: Sizes,
        inputs: PipelineInputs,
        n_folds: int,
        *,
        is_full: bool = False,
    ) -> Self:
        """Return the observations of a study with `n_folds` folds.

        With `is_full`, only full evaluations are included.
        """
        trials = tuple(t for t in history if t.is_told)
        worst = max((t.loss for t in trials if t.loss is not None), default=np.nan)
        trials = tuple(t for t in trials if t.query.is_full or not is_full)
        candidates = inputs.encode(t.query.configuration for t in trials)
        s = sizes.s([t.query.subset for t in trials])
        losses = [worst if t.loss is None else t.loss for t in trials]
        uncached = [t.evaluation.cost_uncached_seconds if t.evaluation else 0.0 for t in trials]
        whole = [more or t.cost_seconds for more, t in zip(uncached, trials, strict=True)]
        seconds = np.array(whole) / [t.query.folds or n_folds for t in trials]
        return cls(
            trials,
            candidates,
            inputs.at(candidates, s),
            np.array(losses, dtype=np.float64),
            np.log(np.maximum(seconds, LEAST_SECONDS)),
            history.older,
        )


def log_floor(objective: Objective) -> float:
    """Return the floor applied to errors before taking logarithms.

    The floor is the error of half a misclassified row among the held-out rows of all folds.
    """
    n_held_out = (objective.n_held_out or 0) * (objective.n_folds or 1)
    return 0.5 * objective.upper / (n_held_out or objective.n_rows or UNKNOWN_RANGE)


@dataclass(frozen=True, slots=True)
class LossScale:
    """The scale on which losses are modeled: log errors, or other losses with outliers capped.

    Attributes:
        floor: Floor applied to errors, and their unit, before taking logarithms; None if logarithms
            are not used.
        cap: Cap of losses.
    """

    floor: float | None
    cap: float = _LARGEST_LOSS

    @classmethod
    def of(cls, losses: Array, objective: Objective, strategy: Strategy) -> Self:
        """Return the scale for losses, shape (n,); at least one loss must be known.

        Unless the strategy is the paper's, losses other than errors are capped at three
        interquartile ranges above the median.
        """
        if strategy.is_log:
            return cls(log_floor(objective))
        low, middle, high = np.quantile(losses, (0.25, 0.5, 0.75))
        if strategy.is_published or high == low:
            return cls(None)
        return cls(None, min(float(middle + RULES.cap_ranges * (high - low)), _LARGEST_LOSS))

    def learned(self, losses: Array) -> Array:
        """Return losses on this scale, shape (n,)."""
        capped = np.clip(losses, -_LARGEST_LOSS, self.cap)
        return capped if self.floor is None else np.log(np.maximum(capped, self.floor) / self.floor)


@dataclass(frozen=True, slots=True)
class Belief:
    """Gaussian processes of losses and run times.

    Attributes:
        processes: Processes of the losses, one for each draw of the parameters.
        costs: Processes of log seconds per fold, one for each draw; empty if run times are not
            used.
        scale: Scale on which losses are modeled.
        basis: Basis functions of the losses.
        n_folds: Number of folds of an evaluation with s above `one_fold_to`.
        one_fold_to: Largest s of an evaluation on one fold.
    """

    processes: tuple[GaussianProcess, ...]
    costs: tuple[GaussianProcess, ...]
    scale: LossScale
    basis: Basis
    n_folds: int = 1
    one_fold_to: float = -1.0

    def predict(self, inputs: Array) -> tuple[Array, Array]:
        """Return means and standard deviations of the mixture of all processes, shape (n,) each."""
        means, deviations = np.array([p.predict(inputs) for p in self.processes]).transpose(1, 0, 2)
        return means.mean(axis=0), np.sqrt((deviations**2).mean(axis=0) + means.var(axis=0))

    def noise(self, inputs: Array) -> Array:
        """Return the noise variance of losses, averaged over processes, shape (n,)."""
        return self.spread**2 * np.mean([p.noise_variance(inputs) for p in self.processes], axis=0)

    @property
    def spread(self) -> float:
        """Standard deviation of the losses to which the processes were fitted."""
        return float(self.processes[0].scale[0])

    def seconds(self, inputs: Array) -> Array:
        """Return predicted seconds, c of equation 7, shape (n,); 0 if run times are not used."""
        if not self.costs:
            return np.zeros(len(inputs))
        folds = np.where(inputs[:, -1] <= self.one_fold_to, 1, self.n_folds)
        each: Array = np.exp([process.predict(inputs)[0] for process in self.costs])
        return folds * each.mean(axis=0)

    def imagining(self, inputs: Array) -> "Belief":
        """Return the belief, assuming that pending evaluations at `inputs` match predictions."""
        return replace(self, processes=tuple(p.imagining(inputs) for p in self.processes))


_Data = dict[str, Any]
"""Arguments of `GaussianProcess.given`: inputs, targets, mean and scale."""


@dataclass(frozen=True, slots=True)
class _Regression:
    """A kernel and a noise model, whose parameters are fitted or drawn.

    The noise variance has a horseshoe prior if `is_of_paper`.
    """

    kernel: FidelityKernel
    noise: Noise
    is_drawn: bool
    is_of_paper: bool

    def learned(self, data: _Data, last: Mapping[str, Any] | None, rng: Generator) -> Any:
        """Return the parameters as JSON values. A fit starts from the `last` parameters."""
        n, start = len(data["inputs"]), np.array(last["thetas"][0]) if last else None
        if last and not self.is_drawn and not is_refitted(n, last["n"]):
            return last
        process = GaussianProcess.fit(
            self.kernel,
            rng=rng,
            noise=self.noise,
            warm_start=start,
            n_restarts=int(start is None),
            max_iterations=FIT_ITERATIONS,
            **data,
        )
        thetas = self._drawn(process, rng) if self.is_drawn else [process.theta]
        return {"thetas": [[round(float(x), 6) for x in theta] for theta in thetas], "n": n}

    def _drawn(self, process: GaussianProcess, rng: Generator) -> Array:
        parameters = (*self.kernel.parameters, *self.noise.parameters)
        n_walkers = 2 * (len(parameters) + 1)
        prior = np.array([[q.draw(rng) for q in parameters] for _ in range(n_walkers)])
        walkers = process.theta + rng.random((n_walkers, 1)) * (prior - process.theta)

        def log_density(theta: Array) -> float:
            inputs, targets = process.inputs, process.standardized
            value = log_posterior_value(
                self.kernel, theta, inputs, targets, noise=self.noise, has_constant=False
            )
            return value + _log_horseshoe(theta[-1]) if self.is_of_paper else value

        sampler = EnsembleSampler(n_walkers, len(parameters), log_density)
        random_state = np.random.RandomState(rng.integers(2**32)).get_state()
        state = State(walkers, random_state=random_state)
        last = sampler.run_mcmc(state, FIT_ITERATIONS, skip_initial_state_check=True, store=False)
        drawn: Array = last.coords[: RULES.draws]
        return drawn

    def given(self, data: _Data, kept: Mapping[str, Any]) -> tuple[GaussianProcess, ...]:
        """Return processes with the parameters in `kept`, conditioned on the current `data`."""
        return tuple(
            GaussianProcess.given(self.kernel, np.array(theta), noise=self.noise, **data)
            for theta in kept["thetas"]
        )


class Learner:
    """Learns beliefs about one space, as a strategy prescribes."""

    def __init__(
        self, inputs: PipelineInputs, sizes: Sizes, objective: Objective, strategy: Strategy
    ) -> None:
        self._objective, self._strategy = objective, strategy
        self._one_fold_to = float(sizes.s(strategy.one_fold_to)) if strategy.one_fold_to else -1.0
        self._older = OlderMean(lambda known: inputs.of(inputs.encode(known)))
        within, s = inputs.within, inputs.width
        is_of_paper = strategy.is_published and strategy.is_drawn
        self._most_learned = None if is_of_paper else RULES.most_learned
        plain = Noise(_FLAT_NOISE) if is_of_paper else Noise()
        noise = plain if strategy.is_published else FallingNoise(s)
        kernel = FidelityKernel(within, s, strategy.basis)
        self._losses = _Regression(kernel, noise, strategy.is_drawn, is_of_paper)
        of_costs = FidelityKernel(within, s, PAPER_COST if is_of_paper else COST)
        self._costs = _Regression(of_costs, plain, is_of_paper, is_of_paper)

    def learn(
        self, seen: Observations, last: Mapping[str, Any], rng: Generator
    ) -> tuple[Belief, dict[str, Any]]:
        """Return the belief, and its parameters as JSON values for the next ask.

        `last` contains the parameters of the previous ask. At least one observation must have a
        loss.
        """
        losses, seconds, _ = self._data(seen)
        kept = {"losses": self._losses.learned(losses, last.get("losses"), rng)}
        if self._strategy.has_costs:
            kept["costs"] = self._costs.learned(seconds, last.get("costs"), rng)
        return self.recall(seen, kept), kept

    def recall(self, seen: Observations, kept: Mapping[str, Any]) -> Belief:
        """Return the belief with the parameters in `kept`, conditioned on the observations."""
        losses, seconds, scale = self._data(seen)
        return Belief(
            self._losses.given(losses, kept["losses"]),
            self._costs.given(seconds, kept["costs"]) if self._strategy.has_costs else (),
            scale,
            self._strategy.basis,
            self._objective.n_folds or 1,
            self._one_fold_to,
        )

    def _data(self, seen: Observations) -> tuple[_Data, _Data, LossScale]:
        """Return the losses and log seconds to fit to, and the scale of the losses.

        If there are too many observations, the ones on the most rows are used, and the newest among
        equals. The paper uses all observations.
        """
        order = np.lexsort((-np.arange(len(seen.trials)), -seen.inputs[:, -1]))
        rows = np.sort(order[: self._most_learned])
        scale = LossScale.of(seen.losses[rows], self._objective, self._strategy)
        losses = scale.learned(seen.losses[rows])
        older = self._older.given(seen.older)
        mean: LossMean | float = float(losses.mean())
        if older is not None:  # observations of earlier runs are full evaluations
            mean = lambda inputs: scale.learned(older(inputs[:, :-1]))  # noqa: E731
        ln = seen.log_seconds[rows]
        targets = ((losses, mean), (ln, float(ln.mean())))
        of_losses, of_seconds = (
            {"inputs": seen.inputs[rows], "targets": y, "mean": m, "scale": float(y.std()) or 1.0}
            for y, m in targets
        )
        return of_losses, of_seconds, scale
