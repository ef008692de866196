"""Configurations: one algorithm per searched step and the values of its hyperparameters."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

import numpy as np
from ConfigSpace import Configuration as Assignment
from ConfigSpace import ConfigurationSpace
from ConfigSpace.exceptions import ForbiddenValueError
from ConfigSpace.hyperparameters import (
    CategoricalHyperparameter,
    Constant,
    Hyperparameter,
    OrdinalHyperparameter,
)

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.space import Path, Space

__all__ = [
    "Choice",
    "Configuration",
    "Query",
    "Value",
    "active_hyperparameters",
    "default_choice",
    "default_configuration",
    "enumerate_configurations",
    "from_unit",
    "is_allowed",
    "plain_value",
    "sample_choice",
    "sample_configuration",
    "to_unit",
]

Value = bool | int | float | str
"""What a hyperparameter can be set to."""

_MAX_DRAWS = 10_000
"""Draws before a space whose constraints leave almost nothing is given up."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The algorithm of one step with the values of its active hyperparameters, sorted by name."""

    algorithm: str
    values: tuple[tuple[str, Value], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """`{"algorithm": ..., "hyperparameters": {...}}`."""
        return {"algorithm": self.algorithm, "hyperparameters": dict(self.values)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        values: Mapping[str, Value] = document["hyperparameters"]
        return cls(document["algorithm"], tuple(sorted(values.items())))


@dataclass(frozen=True, slots=True)
class Configuration:
    """One choice per searched step, in the order of the steps."""

    choices: tuple[tuple[str, Choice], ...]

    @property
    def path(self) -> Path:
        """The ids of the algorithms, one per searched step."""
        return tuple(choice.algorithm for _, choice in self.choices)

    def __getitem__(self, step: str) -> Choice:
        return dict(self.choices)[step]

    def to_json(self) -> dict[str, Any]:
        """By step name, the algorithm and its values; the order is that of the steps."""
        return {step: choice.to_json() for step, choice in self.choices}

    @property
    def canonical(self) -> str:
        """Canonical JSON: equal text if and only if equal configuration."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, document: Mapping[str, Any], space: Space) -> Self:
        """Read and check a configuration against a space.

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
            values = _checked(algorithm, given.get("hyperparameters", {}), step.name)
            choices.append((step.name, Choice(algorithm.id, values)))
        configuration = cls(tuple(choices))
        if not space.is_feasible(configuration.path):
            raise ValueError(
                f"path {' > '.join(configuration.path)} cannot run in space {space.name!r}"
            )
        return configuration


@dataclass(frozen=True, slots=True)
class Query:
    """A configuration and the fidelity at which to evaluate it.

    Attributes:
        configuration: What to evaluate.
        subset: Share of the training rows to train on, in (0, 1].
        subset_draw: Which of the independent families of nested subsets.
        epochs: How far to train an iterative model, counted from its start; None for a full fit.
    """

    configuration: Configuration
    subset: float = 1.0
    subset_draw: int = 0
    epochs: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.subset <= 1:
            raise ValueError(f"subset is a share of the rows in (0, 1]; got {self.subset}")
        if self.subset_draw < 0:
            raise ValueError(f"subset_draw counts from 0; got {self.subset_draw}")
        if self.epochs is not None and self.epochs < 1:
            raise ValueError(f"epochs are at least 1, or None for a full fit; got {self.epochs}")

    def to_json(self) -> dict[str, Any]:
        """Configuration, subset, subset_draw, epochs."""
        return {
            "configuration": self.configuration.to_json(),
            "subset": self.subset,
            "subset_draw": self.subset_draw,
            "epochs": self.epochs,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], space: Space) -> Self:
        """The inverse of `to_json`, checked against a space."""
        return cls(
            Configuration.from_json(document["configuration"], space),
            float(document["subset"]),
            int(document["subset_draw"]),
            document["epochs"],
        )


def active_hyperparameters(
    hyperparameters: ConfigurationSpace, values: Mapping[str, Value]
) -> Iterator[Hyperparameter[Any, Any]]:
    """Those whose conditions hold, parents first; `values` may grow while this is consumed."""
    for hyperparameter in hyperparameters.values():
        conditions = hyperparameters.parent_conditions_of[hyperparameter.name]
        parents = hyperparameters.parents_of[hyperparameter.name]
        if all(parent.name in values for parent in parents) and all(
            condition.satisfied_by_value(dict(values)) for condition in conditions
        ):
            yield hyperparameter


def from_unit(hyperparameter: Hyperparameter[Any, Any], u: float) -> Value:
    """The value at position `u` in [0, 1]; discrete values share the interval evenly."""
    if isinstance(hyperparameter, Constant):
        return plain_value(hyperparameter.value)
    if isinstance(hyperparameter, CategoricalHyperparameter):
        sequence = hyperparameter.choices
    elif isinstance(hyperparameter, OrdinalHyperparameter):
        sequence = hyperparameter.sequence
    else:
        return plain_value(hyperparameter.to_value(min(max(u, 0.0), 1.0)))
    return plain_value(sequence[min(int(u * len(sequence)), len(sequence) - 1)])


def to_unit(hyperparameter: Hyperparameter[Any, Any], value: Value) -> float:
    """The position of `value` in [0, 1]; a discrete value stands in the middle of its share."""
    if isinstance(hyperparameter, Constant):
        return 0.5
    if isinstance(hyperparameter, CategoricalHyperparameter):
        return (hyperparameter.choices.index(value) + 0.5) / len(hyperparameter.choices)
    if isinstance(hyperparameter, OrdinalHyperparameter):
        return (hyperparameter.sequence.index(value) + 0.5) / len(hyperparameter.sequence)
    return float(hyperparameter.to_vector(value))


def sample_configuration(
    space: Space, rng: np.random.Generator, path: Path | None = None
) -> Configuration:
    """A configuration drawn from the prior: uniform over paths, then over each range.

    Args:
        space: Where to draw from.
        rng: Source of randomness.
        path: Draw hyperparameters for this path only.

    Raises:
        ValueError: If no draw in ten thousand satisfies the constraints.
    """
    if path is None:
        path = _sample_path(space, rng)
    return _assemble(
        space,
        path,
        [_sample_values(space.step(s.name).algorithm(a), rng) for s, a in _zip(space, path)],
    )


def default_choice(algorithm: Algorithm) -> Choice:
    """An algorithm with every hyperparameter at its default."""
    return Choice(algorithm.id, tuple(sorted(_defaults(algorithm).items())))


def sample_choice(algorithm: Algorithm, rng: np.random.Generator) -> Choice:
    """An algorithm with values drawn from the prior.

    Raises:
        ValueError: If no draw in ten thousand satisfies the constraints.
    """
    return Choice(algorithm.id, tuple(sorted(_sample_values(algorithm, rng).items())))


def default_configuration(space: Space, path: Path) -> Configuration:
    """The path with every hyperparameter at its default."""
    return _assemble(space, path, [_defaults(s.algorithm(a)) for s, a in _zip(space, path)])


def enumerate_configurations(
    space: Space, limit: int, path: Path | None = None
) -> list[Configuration] | None:
    """All configurations of a small finite space, or None when there are more than `limit`.

    Args:
        space: The space.
        limit: How many to list at most.
        path: List those of this path only.
    """
    found: list[Configuration] = []
    for listed in space.paths() if path is None else (path,):
        grids = [_grid(s.algorithm(a), limit) for s, a in _zip(space, listed)]
        known = [grid for grid in grids if grid is not None]
        if len(known) < len(grids):
            return None
        for values in product(*known):
            found.append(_assemble(space, listed, list(values)))
            if len(found) > limit:
                return None
    return found


def is_allowed(space: Space, configuration: Configuration) -> bool:
    """Whether no forbidden clause of its algorithms rules the values out together."""
    return all(
        _is_allowed(space.step(step).algorithm(choice.algorithm), dict(choice.values))
        for step, choice in configuration.choices
    )


def _zip(space: Space, path: Path) -> Iterator[tuple[Any, str]]:
    return zip(space.searched, path, strict=True)


def _assemble(space: Space, path: Path, values: list[dict[str, Value]]) -> Configuration:
    return Configuration(
        tuple(
            (step.name, Choice(algorithm, tuple(sorted(v.items()))))
            for (step, algorithm), v in zip(_zip(space, path), values, strict=True)
        )
    )


def _sample_path(space: Space, rng: np.random.Generator) -> Path:
    for _ in range(_MAX_DRAWS):
        path = tuple(s.algorithms[int(rng.integers(len(s.algorithms)))].id for s in space.searched)
        if space.is_feasible(path):
            return path
    raise ValueError(
        f"no path of space {space.name!r} that can run was found in {_MAX_DRAWS} draws"
    )


def _sample_values(algorithm: Algorithm, rng: np.random.Generator) -> dict[str, Value]:
    for _ in range(_MAX_DRAWS):
        values: dict[str, Value] = {}
        for hyperparameter in active_hyperparameters(algorithm.hyperparameters, values):
            values[hyperparameter.name] = from_unit(hyperparameter, float(rng.random()))
        if _is_allowed(algorithm, values):
            return values
    raise ValueError(
        f"no values of algorithm {algorithm.id!r} outside its forbidden clauses were found "
        f"in {_MAX_DRAWS} draws"
    )


def _defaults(algorithm: Algorithm) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for hyperparameter in active_hyperparameters(algorithm.hyperparameters, values):
        values[hyperparameter.name] = plain_value(hyperparameter.default_value)
    return values


def _grid(algorithm: Algorithm, limit: int) -> list[dict[str, Value]] | None:
    """All assignments of discrete hyperparameters; None if continuous or more than `limit`."""
    grid: list[dict[str, Value]] = [{}]
    for hyperparameter in algorithm.hyperparameters.values():
        size = hyperparameter.size
        if not np.isfinite(size) or size * len(grid) > limit:
            return None
        options = [from_unit(hyperparameter, (i + 0.5) / size) for i in range(int(size))]
        grid = [
            {**values, hyperparameter.name: option} if is_active else values
            for values in grid
            for is_active in [_is_active(algorithm, hyperparameter.name, values)]
            for option in (options if is_active else options[:1])
        ]
    return [values for values in grid if _is_allowed(algorithm, values)]


def _is_active(algorithm: Algorithm, name: str, values: Mapping[str, Value]) -> bool:
    return any(h.name == name for h in active_hyperparameters(algorithm.hyperparameters, values))


def _is_allowed(algorithm: Algorithm, values: Mapping[str, Value]) -> bool:
    if not algorithm.hyperparameters.forbidden_clauses:
        return True
    try:
        Assignment(algorithm.hyperparameters, values=dict(values))
    except ForbiddenValueError:
        return False
    return True


def _checked(
    algorithm: Algorithm, given: Mapping[str, Any], step: str
) -> tuple[tuple[str, Value], ...]:
    active = {h.name: h for h in active_hyperparameters(algorithm.hyperparameters, given)}
    if set(given) != set(active):
        raise ValueError(
            f"algorithm {algorithm.id!r} of step {step!r} takes the values of "
            f"{', '.join(active) or 'nothing'}; got {', '.join(given) or 'nothing'}"
        )
    for name, value in given.items():
        if not active[name].legal_value(value):
            raise ValueError(
                f"{name}={value!r} is outside the range of algorithm {algorithm.id!r} "
                f"of step {step!r}: {active[name]}"
            )
    if not _is_allowed(algorithm, given):
        raise ValueError(f"{dict(given)} is forbidden for algorithm {algorithm.id!r}")
    return tuple(sorted(given.items()))


def plain_value(value: Any) -> Value:
    """A Python value in place of numpy's, so that JSON and equality are plain."""
    plain: Value = value.item() if isinstance(value, np.generic) else value
    return plain
