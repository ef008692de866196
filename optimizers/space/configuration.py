"""Configurations: one algorithm per searched step and the values of its hyperparameters."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.conditions import active_hyperparameters, are_allowed
from prefect_tune.optimizers.space.rendering import range_text
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.unit_interval import Value, plain_value

__all__ = [
    "Choice",
    "Configuration",
    "default_choice",
    "default_configuration",
    "is_allowed",
]


@dataclass(frozen=True, slots=True)
class Choice:
    """The algorithm of one step with the values of its active hyperparameters, sorted by name."""

    algorithm: str
    values: tuple[tuple[str, Value], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return `{"algorithm": ..., "hyperparameters": {...}}`."""
        return {"algorithm": self.algorithm, "hyperparameters": dict(self.values)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls.of(document["algorithm"], document["hyperparameters"])

    @classmethod
    def of(cls, algorithm: str, values: Mapping[str, Value]) -> Self:
        """Return an algorithm with the values of its active hyperparameters, in any order."""
        return cls(algorithm, tuple(sorted(values.items())))


@dataclass(frozen=True, slots=True)
class Configuration:
    """One choice per searched step, in the order of the steps."""

    choices: tuple[tuple[str, Choice], ...]

    @classmethod
    def of(cls, space: Space, path: Path, values: Iterable[Mapping[str, Value]]) -> Self:
        """Return a path with the values of each of its algorithms."""
        given = zip(space.searched, path, values, strict=True)
        return cls(tuple((step.name, Choice.of(a, v)) for step, a, v in given))

    @property
    def path(self) -> Path:
        """The ids of the algorithms, one per searched step."""
        return tuple(choice.algorithm for _, choice in self.choices)

    def __getitem__(self, step: str) -> Choice:
        return dict(self.choices)[step]

    def to_json(self) -> dict[str, Any]:
        """Return the algorithm and its values by step, in the order of the steps."""
        return {step: choice.to_json() for step, choice in self.choices}

    @property
    def canonical(self) -> str:
        """Canonical JSON: equal text if and only if equal configuration."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, document: Mapping[str, Any], space: Space) -> Self:
        """Read and check a configuration against a space, in canonical form.

        Steps that a later algorithm ignores do nothing, whatever the document has.

        Raises:
            ValueError: If steps, algorithms or hyperparameters are not those of the space, if a
                value is out of its range, or if the path cannot run; names what is wrong.
        """
        expected = [s.name for s in space.searched]
        if set(document) != set(expected):
            raise ValueError(
                f"a configuration of space {space.name!r} has the steps {', '.join(expected)}; "
                f"got {', '.join(document) or 'none'}"
            )
        choices = []
        for step in space.searched:
            given = document[step.name]
            algorithm = step.algorithm(given["algorithm"])
            values = given.get("hyperparameters", {})
            choices.append((step.name, _checked(algorithm, values, step.name)))
        path = tuple(choice.algorithm for _, choice in choices)
        configuration = cls(
            tuple(
                (step, choice if choice.algorithm == algorithm else Choice(algorithm))
                for (step, choice), algorithm in zip(choices, space.canonical(path), strict=True)
            )
        )
        if not space.is_feasible(configuration.path):
            raise ValueError(
                f"path {' > '.join(configuration.path)} cannot run in space {space.name!r}"
            )
        return configuration


def default_choice(algorithm: Algorithm) -> Choice:
    """Return an algorithm with every hyperparameter at its default."""
    return Choice.of(algorithm.id, _defaults(algorithm))


def default_configuration(space: Space, path: Path) -> Configuration:
    """Return the path with every hyperparameter at its default."""
    return Configuration.of(space, path, map(_defaults, space.algorithms(path)))


def is_allowed(space: Space, configuration: Configuration) -> bool:
    """Return whether no forbidden clause of its algorithms rules the values out together."""
    return all(
        are_allowed(space.step(step).algorithm(choice.algorithm), dict(choice.values))
        for step, choice in configuration.choices
    )


def _defaults(algorithm: Algorithm) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for hyperparameter in active_hyperparameters(algorithm.hyperparameters, values):
        values[hyperparameter.name] = plain_value(hyperparameter.default_value)
    return values


def _checked(algorithm: Algorithm, given: Mapping[str, Any], step: str) -> Choice:
    """Read the values of one step.

    Raises:
        ValueError: If the algorithm does not take these, or one is out of its range.
    """
    active = {h.name: h for h in active_hyperparameters(algorithm.hyperparameters, given)}
    if set(given) != set(active):
        raise ValueError(
            f"algorithm {algorithm.id!r} of step {step!r} takes the values of "
            f"{', '.join(active) or 'nothing'}; got {', '.join(given) or 'nothing'}"
        )
    for name, value in given.items():
        if not active[name].legal_value(value):
            raise ValueError(
                f"{name}={value!r} cannot be of algorithm {algorithm.id!r} of step {step!r}, which "
                f"takes {range_text(active[name])}"
            )
    if not are_allowed(algorithm, given):
        raise ValueError(f"{dict(given)} is forbidden for algorithm {algorithm.id!r}")
    return Choice.of(algorithm.id, given)
