"""The belief in losses and seconds, learned from the observations of a study."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from prefect_tune.optimizers.methods.fabolas.inference import (
    Group,
    Inference,
    Posterior,
    Regression,
    model_keys,
)
from prefect_tune.optimizers.methods.fabolas.observations import LossScale, SubsetObservations
from prefect_tune.optimizers.methods.fabolas.recipe import COST, FULL, SearchRecipe
from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.surrogates.fidelity_kernel import Basis, FidelityKernel
from prefect_tune.optimizers.surrogates.kernel import (
    Constant,
    ConstantNoise,
    FallingNoise,
    Parameter,
)
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs, conditional_inputs
from prefect_tune.optimizers.surrogates.random_forest import LossMean, OlderMean
from prefect_tune.optimizers.trials.objective import Objective

_ONE = Parameter("constant", 0.0, -1e-9, 1e-9)


def _lengthscale(name: str, n: int) -> Parameter:
    """Prior ln l^2 ~ N(2 (ln 0.5 + ln(d) / 4), 2^2) in [-10, 2 + ln d]; uniform in the paper."""
    mean = log(0.5) + 0.25 * log(n)
    return Parameter(name, mean, -5.0, 1.0 + 0.5 * log(n), (mean, 1.0))


def pipeline_inputs(space: Space) -> PipelineInputs:
    """Return the inputs of a space, with the priors of this family of methods."""
    return conditional_inputs(space, _lengthscale)


@dataclass(frozen=True, slots=True)
class SubsetBelief:
    """Losses and seconds, learned from a set of observations.

    Attributes:
        cost_scale: Mean and deviation of ln seconds, the least observed, and the most expected.
    """

    samples: tuple[Posterior, ...]
    costs: Posterior | None
    scale: LossScale
    cost_scale: tuple[float, float, float, float]
    basis: Basis
    folds: tuple[int, int] = (1, 1)
    small: float = 0.0

    def predict(self, inputs: Array) -> tuple[Array, Array]:
        """Return standardised means and deviations of the mixture, shape (n,)."""
        each = [sample.predict(inputs) for sample in self.samples]
        means = np.array([mean for mean, _ in each])
        variances = np.array([variance for _, variance in each])
        return means.mean(axis=0), np.sqrt(variances.mean(axis=0) + means.var(axis=0))

    def noise(self, inputs: Array) -> Array:
        """Return the mean variance of outcomes around the function, shape (n,)."""
        return np.mean([sample.noise(inputs) for sample in self.samples], axis=0)

    def outcome(self, row: Array) -> tuple[float, float]:
        """Return mean and deviation of the outcome of one row, (1, d), before standardisation."""
        mean, deviation = self.predict(row)
        spread = np.sqrt(deviation**2 + self.noise(row))
        return (
            self.scale.mean + self.scale.deviation * float(mean[0]),
            self.scale.deviation * float(spread[0]),
        )

    def knows(self, inputs: Array) -> NDArray[np.bool_]:
        """Return which rows have a model, shape (n,)."""
        known = self.samples[0].knows(inputs)
        return known if self.costs is None else known & self.costs.knows(inputs)

    def seconds(self, inputs: Array) -> Array:
        """Return predicted seconds, c of equation 7, clipped near those observed, shape (n,)."""
        mean, deviation, least, most = self.cost_scale
        if self.costs is None:
            return np.zeros(len(inputs))
        log_seconds = mean + deviation * self.costs.predict(inputs)[0]
        of_small, of_others = self.folds
        folds = np.where(inputs[:, -1] <= self.small, of_small, of_others)
        return folds * np.exp(np.clip(log_seconds, least - RULES.cheapest, most + RULES.dearest))

    def with_outcomes_drawn(self, inputs: Array, rng: Generator) -> "SubsetBelief":
        """Return the belief with outcomes of pending rows, drawn by each sample."""
        samples = self.samples if len(self.samples) > 1 else self.samples * RULES.outcomes
        drawn = tuple(sample.with_outcomes_drawn(inputs, rng) for sample in samples)
        return replace(self, samples=drawn)


class SubsetLearner:
    """Learns beliefs of one space by a recipe; subsets up to `small` have `subset_folds` folds."""

    def __init__(
        self,
        inputs: PipelineInputs,
        recipe: SearchRecipe,
        objective: Objective,
        *,
        inference: Inference,
        n_samples: int,
        subset_folds: int | None = None,
        small: float = 0.0,
    ) -> None:
        self.inputs, self._recipe, self._objective = inputs, recipe, objective
        n_folds = objective.n_folds or 1
        self._folds, self._small = (subset_folds or n_folds, n_folds), small
        self._older_mean = OlderMean(lambda known: inputs.of(inputs.encode(known)))
        self._is_log = recipe.learns_logs(objective)
        self._basis = recipe.log_basis if self._is_log else recipe.raw_basis
        within, s = inputs.within or Constant(_ONE), inputs.width
        noise = FallingNoise(s) if recipe.has_falling_noise else ConstantNoise()
        kernel = FidelityKernel(within, s, self._basis)
        self._losses = Regression(kernel, noise, inference, n_samples)
        # With few full evaluations, drawn parameters are cheap and keep the process uncertain.
        full = FidelityKernel(within, s, FULL)
        self._full = Regression(full, ConstantNoise(), "ensemble", n_samples)
        self._costs = Regression(FidelityKernel(within, s, COST), ConstantNoise())
        self._model_column = inputs.choice_column(inputs.candidates.space.steps[-1].name)

    def learn(
        self,
        seen: SubsetObservations,
        kept: Mapping[str, Any],
        rng: Generator,
        *,
        full_only: bool = False,
    ) -> tuple[SubsetBelief, dict[str, Any]]:
        """Return the belief, and its parameters for the next ask, as JSON values.

        At least one observation has a loss. `kept` are the last parameters, if any. If `full_only`,
        losses are learned from full evaluations alone, and costs stay as they are.
        """
        losses, _, _, _ = self._loss_groups(seen, full_only=full_only)
        name = "full" if full_only else "losses"
        regression = self._full if full_only else self._losses
        new = {**kept, name: regression.learned(losses, kept.get(name, {}), rng)}
        if self._recipe.has_costs and (not full_only or "costs" not in kept):
            costs, _, _ = self._cost_groups(seen)
            new["costs"] = self._costs.learned(costs, kept.get("costs", {}), rng)
        return self.recall(seen, new, full_only=full_only), new

    def recall(
        self, seen: SubsetObservations, kept: Mapping[str, Any], *, full_only: bool = False
    ) -> SubsetBelief:
        """Return the belief with earlier parameters, conditioned on the current observations."""
        groups, column, scale, mean = self._loss_groups(seen, full_only=full_only)
        regression = self._full if full_only else self._losses
        own = kept["full" if full_only else "losses"]
        samples = regression.posteriors(groups, own, column, mean)
        cost_groups, cost_column, cost_scale = self._cost_groups(seen)
        costs = None
        if self._recipe.has_costs:
            (costs,) = self._costs.posteriors(cost_groups, kept["costs"], cost_column)
        basis = FULL if full_only else self._basis
        return SubsetBelief(samples, costs, scale, cost_scale, basis, self._folds, self._small)

    def _loss_groups(
        self, seen: SubsetObservations, *, full_only: bool
    ) -> tuple[dict[int, Group], int | None, LossScale, LossMean | None]:
        known = seen[np.isfinite(seen.losses) & ((seen.s == 1) | (not full_only))]
        scale = LossScale.of(known.losses, self._objective, is_log=self._is_log)
        parts, column = self._parted(known)
        mean = self._mean(seen, scale)
        groups = {
            k: Group(p.inputs, scale.learned(p.losses) - (mean(p.inputs) if mean else 0.0))
            for k, p in parts.items()
        }
        return groups, column, scale, mean

    def _mean(self, seen: SubsetObservations, scale: LossScale) -> LossMean | None:
        # Older observations are of all rows.
        of_losses = None if seen.older is None else self._older_mean.given(seen.older)
        if of_losses is None:
            return None
        return lambda inputs: scale.learned(of_losses(inputs[:, :-1]))

    def _cost_groups(
        self, seen: SubsetObservations
    ) -> tuple[dict[int, Group], int | None, tuple[float, float, float, float]]:
        ln = seen.log_seconds
        mean, deviation = float(ln.mean()), float(ln.std()) or 1.0
        parts, column = self._parted(seen)
        groups = {k: Group(p.inputs, (p.log_seconds - mean) / deviation) for k, p in parts.items()}
        largest = max(t.query.subset for t in seen.trials)
        most = float(ln.max()) - RULES.steepest * log(largest)
        return groups, column, (mean, deviation, float(ln.min()), most)

    def _parted(self, seen: SubsetObservations) -> tuple[dict[int, SubsetObservations], int | None]:
        column = self._model_column if len(seen) > RULES.one_process else None
        keys = model_keys(seen.inputs, column)
        return {
            int(key): seen[keys == key].thinned(RULES.one_process) for key in np.unique(keys)
        }, column
