"""A space as Optuna's distributions: a category per step, and each algorithm's hyperparameters."""

from collections import defaultdict
from typing import Any

from ConfigSpace.hyperparameters import CategoricalHyperparameter, Constant, Hyperparameter
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.unit_interval import Value, from_unit, to_unit

__all__ = ["Dimensions", "Group", "to_value"]

Group = dict[str, BaseDistribution]
"""Distributions that a trial has all or none of, by name."""


class Dimensions:
    """The distributions of a space or a part of it.

    Args:
        space: The space that may be proposed.

    Attributes:
        choices: A category per step, by its name; every trial has all of them.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self.choices: Group = {
            s.name: CategoricalDistribution([a.id for a in s.algorithms]) for s in space.searched
        }
        self._inside = {s.name: {a.id for a in s.algorithms} for s in space.searched}
        self._groups = {
            name: group
            for s in space.searched
            for a in s.algorithms
            for group in _groups(s.name, a)
            for name in group
        }

    def group(self, step: str, algorithm: str, hyperparameter: str) -> Group | None:
        """Return the distributions that stand with a hyperparameter; None of a constant."""
        return self._groups.get(f"{step}/{algorithm}/{hyperparameter}")

    def of(self, configuration: Configuration) -> tuple[dict[str, Any], Group]:
        """Return the parameters of a configuration that lie in the space, and distributions."""
        params: dict[str, Any] = {}
        distributions: Group = {}
        for step, choice in configuration.choices:
            if choice.algorithm not in self._inside[step]:
                continue
            chosen = self._space.step(step).algorithm(choice.algorithm)
            params[step], distributions[step] = choice.algorithm, self.choices[step]
            for name, value in choice.values:
                group = self.group(step, choice.algorithm, name)
                if group is not None:
                    key = f"{step}/{choice.algorithm}/{name}"
                    params[key] = _from_value(chosen.hyperparameters[name], value)
                    distributions[key] = group[key]
        return params, distributions


def to_value(hyperparameter: Hyperparameter[Any, Any], suggested: Any) -> Value:
    """Return the value that a suggestion stands for."""
    if isinstance(hyperparameter, CategoricalHyperparameter):
        return from_unit(hyperparameter, (suggested + 0.5) / len(hyperparameter.choices))
    return from_unit(hyperparameter, suggested)


def _from_value(hyperparameter: Hyperparameter[Any, Any], value: Value) -> float | int:
    unit = to_unit(hyperparameter, value)
    if isinstance(hyperparameter, CategoricalHyperparameter):
        return int(unit * len(hyperparameter.choices))
    return unit


def _groups(step: str, algorithm: Algorithm) -> list[Group]:
    """Return hyperparameters of equal conditions together, which are active at the same time."""
    space = algorithm.hyperparameters
    groups: dict[str, Group] = defaultdict(dict)
    for h in space.values():
        if isinstance(h, Constant):
            continue
        # A condition reads `child | parent == value`.
        written = (str(c).replace(f"{h.name} | ", "") for c in space.parent_conditions_of[h.name])
        group = groups[" and ".join(sorted(written))]
        group[f"{step}/{algorithm.id}/{h.name}"] = _distribution(h)
    return list(groups.values())


def _distribution(hyperparameter: Hyperparameter[Any, Any]) -> BaseDistribution:
    """Return categories as such; all else by position in [0, 1], linear in logarithms."""
    if isinstance(hyperparameter, CategoricalHyperparameter):
        return CategoricalDistribution(range(len(hyperparameter.choices)))
    return FloatDistribution(0.0, 1.0)
