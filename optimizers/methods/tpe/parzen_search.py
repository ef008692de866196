"""Tree-structured Parzen estimators (Bergstra et al. 2011): Optuna's sampler behind ask, tell."""

from collections.abc import Container
from logging import getLogger
from typing import Any

import numpy as np
import optuna
from ConfigSpace.hyperparameters import (
    CategoricalHyperparameter,
    Constant,
    Hyperparameter,
)
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
)
from optuna.samplers import TPESampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from prefect_tune.optimizers.methods.tpe.declaration import TpeOptions
from prefect_tune.optimizers.space.conditions import active_hyperparameters
from prefect_tune.optimizers.space.configuration import Choice, Configuration, is_allowed
from prefect_tune.optimizers.space.query import Query
from prefect_tune.optimizers.space.sampling import new_configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.unit_interval import Value, from_unit, to_unit
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.optimizers.trials.told_losses import told_losses
from prefect_tune.optimizers.trials.trial import Trial

__all__ = ["ParzenSearch"]

_DRAWS = 20
"""Draws that cannot run or were asked for before, until the prior is drawn from."""

_STUDY = "prefect_tune.optimizers.methods.tpe"
getLogger(InMemoryStorage.__module__).addFilter(lambda record: _STUDY not in record.getMessage())


class ParzenSearch:
    """The search itself, over a space or a part of it.

    Each step's choice is a category, and each algorithm's hyperparameters have densities of their
    own, fitted on the trials that have them: so the conditional structure is kept, and of a trial
    outside the part that may be proposed all that lies inside it is still used.

    Args:
        space: The space that may be proposed.
        objective: What is minimised.
        options: Those of TPE.
    """

    def __init__(self, space: Space, objective: Objective, options: TpeOptions) -> None:
        self.space, self.objective, self.options = space, objective, options
        self._choices = {
            s.name: CategoricalDistribution([a.id for a in s.algorithms]) for s in space.searched
        }
        self._distributions = {
            (s.name, a.id, h.name): _distribution(h)
            for s in space.searched
            for a in s.algorithms
            for h in a.hyperparameters.values()
            if not isinstance(h, Constant)
        }
        self._known: dict[int, FrozenTrial] = {}

    def propose(self, history: History, rng: np.random.Generator) -> Query:
        """Return the next query.

        Raises:
            SpaceExhausted: If nothing is left to propose.
        """
        asked = history.asked
        if len(history.complete) + len(history.failed) < self.options.n_startup:
            return Query(new_configuration(self.space, asked, rng))
        study = self._study(history)
        sampler = TPESampler(
            n_startup_trials=0,
            n_ei_candidates=self.options.n_candidates,
            seed=int(rng.integers(2**31)),
            multivariate=False,
            constant_liar=False,  # pending trials are in the study with the worst loss
        )
        trial = FrozenTrial(
            number=len(history),
            trial_id=-1,
            state=TrialState.RUNNING,
            value=None,
            datetime_start=None,
            datetime_complete=None,
            params={},
            distributions={},
            user_attrs={},
            system_attrs={},
            intermediate_values={},
        )
        for _ in range(_DRAWS):
            configuration = self._draw(sampler, study, trial)
            if (
                configuration not in asked
                and self.space.is_feasible(configuration.path)
                and is_allowed(self.space, configuration)
            ):
                return Query(configuration)
        return Query(new_configuration(self.space, asked, rng))

    def _draw(self, sampler: TPESampler, study: optuna.Study, trial: FrozenTrial) -> Configuration:
        def suggest(name: str, distribution: BaseDistribution) -> Any:
            return sampler.sample_independent(study, trial, name, distribution)

        choices = []
        for step in self.space.searched:
            algorithm = step.algorithm(suggest(step.name, self._choices[step.name]))
            values: dict[str, Value] = {}
            for h in active_hyperparameters(algorithm.hyperparameters, values):
                distribution = self._distributions.get((step.name, algorithm.id, h.name))
                if distribution is None:
                    values[h.name] = from_unit(h, 0.5)
                    continue
                name = f"{step.name}/{algorithm.id}/{h.name}"
                values[h.name] = _to_value(h, suggest(name, distribution))
            choices.append((step.name, Choice(algorithm.id, tuple(sorted(values.items())))))
        return Configuration(tuple(choices))

    def _study(self, history: History) -> optuna.Study:
        """Return an Optuna study of all that is known; pending trials have the worst loss."""
        told, losses = told_losses(history, self.objective, self.options.failure_cost)
        worst = float(losses.max())
        known = [*zip(told, losses, strict=True), *((t, worst) for t in history.pending)]
        return _quiet_study(_GivenTrials([self._frozen(t, float(y)) for t, y in known]))

    def _frozen(self, trial: Trial, loss: float) -> FrozenTrial:
        frozen = self._known.get(trial.number)
        if frozen is None:
            frozen = self._known[trial.number] = self._inside(trial.query.configuration)
            frozen.number = trial.number
        frozen.value = loss
        return frozen

    def _inside(self, configuration: Configuration) -> FrozenTrial:
        """Return the part of a configuration that lies in the space that may be proposed."""
        params: dict[str, Any] = {}
        distributions: dict[str, BaseDistribution] = {}
        for step, choice in configuration.choices:
            if choice.algorithm not in self._choices[step].choices:
                continue
            params[step], distributions[step] = choice.algorithm, self._choices[step]
            hyperparameters = self.space.step(step).algorithm(choice.algorithm).hyperparameters
            for name, value in choice.values:
                distribution = self._distributions.get((step, choice.algorithm, name))
                if distribution is not None:
                    key = f"{step}/{choice.algorithm}/{name}"
                    params[key] = _from_value(hyperparameters[name], value)
                    distributions[key] = distribution
        return create_trial(params=params, distributions=distributions, value=0.0)


class _GivenTrials(InMemoryStorage):
    """A storage that serves the trials it is given; adding them one by one would copy each."""

    def __init__(self, trials: list[FrozenTrial]) -> None:
        super().__init__()
        self._given = trials

    def get_all_trials(
        self,
        study_id: int,  # noqa: ARG002
        deepcopy: bool = True,  # noqa: ARG002
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        return [t for t in self._given if states is None or t.state in states]


def _distribution(hyperparameter: Hyperparameter[Any, Any]) -> BaseDistribution:
    """Return categories as such; all else by position in [0, 1], linear in logarithms."""
    if isinstance(hyperparameter, CategoricalHyperparameter):
        return CategoricalDistribution(range(len(hyperparameter.choices)))
    return FloatDistribution(0.0, 1.0)


def _to_value(hyperparameter: Hyperparameter[Any, Any], suggested: Any) -> Value:
    if isinstance(hyperparameter, CategoricalHyperparameter):
        return from_unit(hyperparameter, (suggested + 0.5) / len(hyperparameter.choices))
    return from_unit(hyperparameter, suggested)


def _from_value(hyperparameter: Hyperparameter[Any, Any], value: Value) -> float | int:
    unit = to_unit(hyperparameter, value)
    if isinstance(hyperparameter, CategoricalHyperparameter):
        return int(unit * len(hyperparameter.choices))
    return unit


def _quiet_study(storage: InMemoryStorage) -> optuna.Study:
    """Return a study in memory; that Optuna logs each one it makes is filtered above."""
    return optuna.create_study(storage=storage, study_name=_STUDY)
