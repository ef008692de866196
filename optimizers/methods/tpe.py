"""Tree-structured Parzen estimators (Bergstra et al. 2011), using Optuna's sampler.

The paper's section 4:

    eq. 2: p(x|y) is l(x) below y*, else g(x)   TPESampler, on the trials of Tpe._study
    eq. 3: EI grows with l(x) / g(x)            TPESampler, of 24 draws from l
    the tree: a node has a density only         Tpe._draw, step by step along the active
    where it is active                          hyperparameters; Dimensions has the distributions
    start with random configurations            Tpe._propose, n_startup of them

Departures from the paper:

- Settings are Optuna's defaults since version 5.
- The choices of all steps have one joint density, as does each group of hyperparameters with equal
  conditions. Unlike Optuna, which infers the groups from trials, the method reads the groups from
  the space.
- Pending trials count as bad.
- Known or invalid draws are redrawn.
- Only a fraction of the trials of earlier runs is used, because Optuna cannot weight individual
  trials.
- A long history is reduced to its best and newest trials, which bounds the time per proposal.
"""

from collections import defaultdict
from collections.abc import Callable, Container
from logging import getLogger
from typing import Any, ClassVar

import numpy as np
import optuna
from ConfigSpace.hyperparameters import CategoricalHyperparameter, Constant, Hyperparameter
from numpy.random import Generator
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import TPESampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as OptunaState

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Method, Reason
from prefect_tune.optimizers.methods.declarations import TPE
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.space.configuration import (
    Choice,
    Configuration,
    Query,
    Value,
    active_hyperparameters,
    is_allowed,
)
from prefect_tune.optimizers.space.sampling import ATTEMPTS, new_configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.vectors import from_unit, to_unit
from prefect_tune.optimizers.trials.history import imputed_losses, worst_excess
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial

Group = dict[str, BaseDistribution]
"""Distributions by parameter name. A trial has either all parameters of a group or none."""


class Dimensions:
    """The distributions of a space.

    Attributes:
        choices: Categorical distribution of each step's choice.
        groups: Group of each hyperparameter that is not constant.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self.choices: Group = {
            s.name: CategoricalDistribution([a.id for a in s.algorithms]) for s in space.searched
        }
        self.groups: dict[str, Group] = {}
        for step in space.searched:
            for algorithm in step.algorithms:
                # Hyperparameters with equal conditions form a group: they are active together.
                hyperparameters, active = algorithm.hyperparameters, defaultdict[str, Group](dict)
                for h in hyperparameters.values():
                    if isinstance(h, Constant):
                        continue
                    # A condition reads `child | parent == value`.
                    conditions = hyperparameters.parent_conditions_of[h.name]
                    written = (str(c).replace(f"{h.name} | ", "") for c in conditions)
                    name = f"{step.name}/{algorithm.id}/{h.name}"
                    self.groups[name] = active[" and ".join(sorted(written))]
                    # Categories are encoded as indices, and other values as positions in [0, 1] on
                    # their scale.
                    self.groups[name][name] = (
                        CategoricalDistribution(range(len(h.choices)))
                        if isinstance(h, CategoricalHyperparameter)
                        else FloatDistribution(0.0, 1.0)
                    )

    def of(self, configuration: Configuration) -> tuple[dict[str, Any], Group]:
        """Return a configuration's parameters and their distributions, by name."""
        params: dict[str, Any] = {}
        distributions: Group = {}
        for step, choice in configuration.choices:
            chosen = self._space.step(step).algorithm(choice.algorithm)
            params[step], distributions[step] = choice.algorithm, self.choices[step]
            for name, value in choice.values:
                key = f"{step}/{choice.algorithm}/{name}"
                if key in self.groups:
                    h = chosen.hyperparameters[name]
                    unit = to_unit(h, value)
                    if isinstance(h, CategoricalHyperparameter):
                        unit = int(unit * len(h.choices))
                    params[key] = unit
                    distributions[key] = self.groups[key][key]
        return params, distributions


def to_value(hyperparameter: Hyperparameter[Any, Any], suggested: Any) -> Value:
    """Return the hyperparameter's value for Optuna's suggestion."""
    if isinstance(hyperparameter, CategoricalHyperparameter):
        return from_unit(hyperparameter, (suggested + 0.5) / len(hyperparameter.choices))
    return from_unit(hyperparameter, suggested)


_STUDY = "prefect_tune.optimizers.methods.tpe"
# Without this setting, Optuna logs each new study.
getLogger(InMemoryStorage.__module__).addFilter(lambda record: _STUDY not in record.getMessage())


class _GivenTrials(InMemoryStorage):
    """A storage of given trials, used because adding trials one by one would copy each trial."""

    def __init__(self, trials: list[FrozenTrial]) -> None:
        super().__init__()
        self._given = trials

    def get_all_trials(
        self,
        study_id: int,  # noqa: ARG002
        deepcopy: bool = True,  # noqa: ARG002
        states: Container[OptunaState] | None = None,
    ) -> list[FrozenTrial]:
        return [t for t in self._given if states is None or t.state in states]

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Ignore the attribute, which would tell other processes about pending trials."""


_N_KNOWN = 500
"""Largest number of trials to which the densities are fitted: a quarter are the best trials, the
rest the newest."""
_START = Reason("random start", "too few results for densities")
_LIKELY = Reason("density ratio", "more similar to good results than to other results")
_NOTHING_ELSE = Reason("random", "all draws from the densities were invalid or evaluated before")


class Tpe(Optimizer):
    """Optuna's TPE over a conditional space, including the results of partial evaluations."""

    method: ClassVar[Method] = TPE

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._dimensions = Dimensions(self.space)
        self._known: dict[int, FrozenTrial] = {}

    def _propose(self, budget: Budget, rng: Generator) -> Query:  # noqa: ARG002
        history, asked = self.history, self.history.asked
        n_told = history.count(TrialState.COMPLETE, TrialState.FAILED)
        if n_told + len(history.older.subsample()) < self.options.n_startup:
            self._because = _START
            return Query(new_configuration(self.space, asked, rng))
        n_best = _N_KNOWN // 4
        known = history if n_told <= _N_KNOWN else history.abridged(n_best, _N_KNOWN - n_best)
        told, losses = imputed_losses(known, self.objective, "worst")
        # The densities depend only on the order: feasible, then by excess, then failed trials.
        excess, worst = worst_excess(known, told), max(losses, default=0.0)
        spread = worst - min(losses, default=0.0) or 1.0
        losses = np.where(excess > 0, worst + spread * excess, losses)
        losses[[t.loss is None for t in told]] = max(losses, default=0.0)
        trials = [self._frozen(t, t.loss) for t in known.older.subsample()]
        trials += [self._frozen(t, float(y)) for t, y in zip(told, losses, strict=True)]
        trials += [self._frozen(t, None) for t in known.pending]
        study = optuna.create_study(storage=_GivenTrials(trials), study_name=_STUDY)
        trial = create_trial(state=OptunaState.RUNNING)
        trial.number = len(history)
        sampler = TPESampler(
            n_startup_trials=0,
            seed=int(rng.integers(2**31)),
            multivariate=True,  # Optuna's name for joint densities
            constant_liar=True,  # pending trials count as bad
        )
        for _ in range(ATTEMPTS):
            configuration = self._draw(lambda group: sampler.sample_relative(study, trial, group))
            if (
                configuration not in asked
                and self.space.is_feasible(configuration.path)
                and is_allowed(self.space, configuration)
            ):
                self._because = _LIKELY
                return Query(configuration)
        self._because = _NOTHING_ELSE
        return Query(new_configuration(self.space, asked, rng))

    def _draw(self, suggest: Callable[[Group], dict[str, Any]]) -> Configuration:
        chosen = suggest(self._dimensions.choices)
        path = self.space.canonical_path(tuple(chosen[step.name] for step in self.space.searched))
        choices = []
        for step, algorithm in zip(self.space.searched, self.space.algorithms(path), strict=True):
            values: dict[str, Value] = {}
            suggested: dict[str, Any] = {}
            for h in active_hyperparameters(algorithm.hyperparameters, values):
                name = f"{step.name}/{algorithm.id}/{h.name}"
                if name not in self._dimensions.groups:
                    values[h.name] = from_unit(h, 0.5)
                    continue
                if name not in suggested:
                    suggested |= suggest(self._dimensions.groups[name])
                values[h.name] = to_value(h, suggested[name])
            choices.append((step.name, Choice.of(algorithm.id, values)))
        return Configuration(tuple(choices))

    def _frozen(self, trial: Trial, loss: float | None) -> FrozenTrial:
        frozen = self._known.get(trial.number)
        if frozen is None:
            params, distributions = self._dimensions.of(trial.query.configuration)
            frozen = create_trial(params=params, distributions=distributions, value=0.0)
            frozen.number = trial.number
            self._known[trial.number] = frozen
        frozen.value = loss
        frozen.state = OptunaState.RUNNING if loss is None else OptunaState.COMPLETE
        return frozen
