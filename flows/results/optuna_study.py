"""Conversion of a study to an in-memory Optuna study, for Optuna's plots and samplers.

Each step is a parameter whose values are algorithms. Each hyperparameter is named
`step/algorithm/hyperparameter`, because hyperparameters of two algorithms can have the same name
but different ranges or meanings.
"""

from datetime import datetime
from typing import Any

import optuna
from ConfigSpace.hyperparameters import (
    IntegerHyperparameter,
    NumericalHyperparameter,
)
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.results.trial_table import attributes_of, optuna_state
from prefect_tune.flows.study.plan import documents_of
from prefect_tune.optimizers.documents import choices_of, value_document
from prefect_tune.optimizers.space.space import Space
from prefect_tune.storage.artifacts import ArtifactStore


def optuna_study(store: ArtifactStore, study: str) -> optuna.Study:
    """Return an in-memory Optuna study that has the same trials and minimizes the loss.

    Learning curves become intermediate values. Times are local times of the latest attempt, as
    usual in Optuna. Raises `UnknownName` if the study does not exist, and `BadInput` if this
    machine has another version of the space.
    """
    opened = open_study(store, study)
    every, distributions = opened.moments(), distributions_of(opened.plan.find_space())
    made = optuna.create_study(study_name=study, direction="minimize")
    with documents_of(study):
        for trial in opened.trials():
            params, moments = dict[str, Any](), every.get(trial.number)
            for step, choice in trial.configuration.items():
                prefix = params[step] = choice["algorithm"]
                known = choice["hyperparameters"].items()
                params |= {f"{step}/{prefix}/{name}": value for name, value in known}
            ours, system = attributes_of(trial, opened.plan, moments)
            frozen = optuna.trial.create_trial(
                state=optuna.trial.TrialState[optuna_state(trial)],
                value=trial.loss if trial.has_loss else None,
                params=params,
                distributions={name: distributions[name] for name in params},
                user_attrs={name: value for name, value in ours.items() if value is not None},
                system_attrs={name: value for name, value in system.items() if value is not None},
                intermediate_values=dict(enumerate(trial.curve, 1)),
            )
            if moments is not None and frozen.state != optuna.trial.TrialState.WAITING:
                start, complete = moments.span(trial.cost_seconds)
                frozen.datetime_start = datetime.fromtimestamp(start)  # noqa: DTZ006 - as Optuna's
                if complete is not None and frozen.state.is_finished():
                    frozen.datetime_complete = datetime.fromtimestamp(complete)  # noqa: DTZ006
            made.add_trial(frozen)
    return made


def distributions_of(space: Space) -> dict[str, BaseDistribution]:
    """Return the Optuna distribution of each parameter in a space, by name."""
    found: dict[str, BaseDistribution] = {}
    for step in space.searched:
        found[step.name] = CategoricalDistribution([a.id for a in step.algorithms])
        for algorithm in step.algorithms:
            for hyperparameter in algorithm.hyperparameters.values():
                name = f"{step.name}/{algorithm.id}/{hyperparameter.name}"
                if not isinstance(hyperparameter, NumericalHyperparameter):
                    choices = map(value_document, choices_of(hyperparameter) or ())
                    found[name] = CategoricalDistribution([*choices])
                    continue
                low, high, log = hyperparameter.lower, hyperparameter.upper, hyperparameter.log
                is_whole = isinstance(hyperparameter, IntegerHyperparameter)
                kind = IntDistribution if is_whole else FloatDistribution
                found[name] = kind(low, high, log=log)
    return found
