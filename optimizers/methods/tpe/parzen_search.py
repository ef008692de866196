"""Tree-structured Parzen estimators (Bergstra et al. 2011): Optuna's sampler behind ask, tell.

Optuna's default for one objective is, since version 5, one joint density of what every trial has
(here the steps' choices), a density of its own for each other hyperparameter, and pending trials
among the bad ones; before, each had a density of its own and pending trials did not count. Its
`group=True` gives joint densities to hyperparameters that are active together, too. Optuna finds
such groups in the trials, as they come; here they are read from the space.
"""

from typing import Any

import numpy as np
import optuna
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as OptunaState

from prefect_tune.optimizers.methods.tpe.declaration import TpeOptions
from prefect_tune.optimizers.methods.tpe.dimensions import Dimensions, Group, to_value
from prefect_tune.optimizers.methods.tpe.optuna_study import new_trial, study_of
from prefect_tune.optimizers.reason import Reason
from prefect_tune.optimizers.space.conditions import active_hyperparameters
from prefect_tune.optimizers.space.configuration import Choice, Configuration, is_allowed
from prefect_tune.optimizers.space.query import Query
from prefect_tune.optimizers.space.sampling import new_configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.unit_interval import Value, from_unit
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.optimizers.trials.state import TrialState
from prefect_tune.optimizers.trials.told_losses import told_losses
from prefect_tune.optimizers.trials.trial import Trial

__all__ = ["ParzenSearch"]

_DRAWS = 20
"""Draws that cannot run or were asked for before, until the prior is drawn from."""
_START = Reason("random start", "too few results for densities")
_LIKELY = Reason("density ratio", "more like the good results than like the others")
_NOTHING_ELSE = Reason("random", "all that the densities propose was asked for")


class ParzenSearch:
    """The search itself, over a space or a part of it, of one history.

    Densities of an algorithm's hyperparameters are fitted on the trials that have them: so the
    conditional structure is kept, and of a trial outside the part that may be proposed what lies
    inside it is still used.

    Args:
        space: The space that may be proposed.
        objective: What is minimised.
        options: Those of TPE.
    """

    def __init__(self, space: Space, objective: Objective, options: TpeOptions) -> None:
        self.space, self.objective, self.options = space, objective, options
        self._dimensions = Dimensions(space)
        self._known: dict[int, FrozenTrial] = {}

    def propose(self, history: History, rng: np.random.Generator) -> tuple[Query, Reason]:
        """Return the next query, and why.

        Raises:
            SpaceExhausted: If nothing is left to propose.
        """
        asked, n_known = history.asked, self.options.n_known
        n_told = history.count(TrialState.COMPLETE, TrialState.FAILED)
        if n_told < self.options.n_startup:
            return Query(new_configuration(self.space, asked, rng)), _START
        n_best = n_known // 4
        known = history if n_told <= n_known else history.abridged(n_best, n_known - n_best)
        study, trial = self._study(known), new_trial(len(history))
        sampler = TPESampler(
            n_startup_trials=0,
            n_ei_candidates=self.options.n_candidates,
            seed=int(rng.integers(2**31)),
            multivariate=True,  # of what is suggested together
            constant_liar=True,  # pending trials are among the bad ones
        )
        for _ in range(_DRAWS):
            configuration = self._draw(sampler, study, trial)
            if (
                configuration not in asked
                and self.space.is_feasible(configuration.path)
                and is_allowed(self.space, configuration)
            ):
                return Query(configuration), _LIKELY
        return Query(new_configuration(self.space, asked, rng)), _NOTHING_ELSE

    def _draw(self, sampler: TPESampler, study: optuna.Study, trial: FrozenTrial) -> Configuration:
        def suggest(group: Group, *, together: bool) -> dict[str, Any]:
            if together:
                return sampler.sample_relative(study, trial, group)
            one = sampler.sample_independent
            return {name: one(study, trial, name, group[name]) for name in group}

        joint = self.options.joint
        chosen = suggest(self._dimensions.choices, together=joint != "nothing")
        path = self.space.settled(tuple(chosen[step.name] for step in self.space.searched))
        choices = []
        for step, algorithm in zip(self.space.searched, self.space.algorithms(path), strict=True):
            values: dict[str, Value] = {}
            suggested: dict[str, Any] = {}
            for h in active_hyperparameters(algorithm.hyperparameters, values):
                group = self._dimensions.group(step.name, algorithm.id, h.name)
                if group is None:
                    values[h.name] = from_unit(h, 0.5)
                    continue
                name = f"{step.name}/{algorithm.id}/{h.name}"
                if name not in suggested:
                    suggested |= suggest(group, together=joint == "groups")
                values[h.name] = to_value(h, suggested[name])
            choices.append((step.name, Choice(algorithm.id, tuple(sorted(values.items())))))
        return Configuration(tuple(choices))

    def _study(self, history: History) -> optuna.Study:
        """Return an Optuna study of all that is known."""
        told, losses = told_losses(history, self.objective, self.options.failure_cost)
        trials = [self._frozen(t, float(y)) for t, y in zip(told, losses, strict=True)]
        return study_of([*trials, *(self._frozen(t, None) for t in history.pending)])

    def _frozen(self, trial: Trial, loss: float | None) -> FrozenTrial:
        """Return an Optuna trial; pending without a loss."""
        frozen = self._known.get(trial.number)
        if frozen is None:
            params, distributions = self._dimensions.of(trial.query.configuration)
            frozen = create_trial(params=params, distributions=distributions, value=0.0)
            frozen.number = trial.number
            self._known[trial.number] = frozen
        frozen.value = loss
        frozen.state = OptunaState.RUNNING if loss is None else OptunaState.COMPLETE
        return frozen
