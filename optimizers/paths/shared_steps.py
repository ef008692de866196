"""Steps of one algorithm, which all paths share.

Models of paths cannot tell what such a step's hyperparameters do, and whoever starts every path
with default values would find out late. Each value of its categorical hyperparameters is therefore
tried once, on the best configuration so far.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ConfigSpace.hyperparameters import CategoricalHyperparameter

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.conditions import active_hyperparameters
from prefect_tune.optimizers.space.configuration import Choice, Configuration, is_allowed
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.step import Step
from prefect_tune.optimizers.space.unit_interval import Value, plain_value

__all__ = ["shared_choices", "untried_variants", "with_choices"]


def shared_choices(space: Space, configuration: Configuration) -> dict[str, Choice]:
    """Return the choices in the steps that all paths share and that have categorical values."""
    return {s.name: configuration[s.name] for s in _shared(space)}


def untried_variants(
    space: Space, best: Configuration, asked: Iterable[Configuration]
) -> Iterator[Configuration]:
    """Yield the best configuration with an untried value of a shared step.

    Args:
        space: The space.
        best: What to vary, one value at a time.
        asked: The configurations so far, with the best one.
    """
    choices = list(asked)
    for step in _shared(space):
        algorithm = step.algorithms[0]
        tried = {(name, value) for c in choices for name, value in c[step.name].values}
        active = dict(best[step.name].values)
        for hyperparameter in _categorical(algorithm):
            if hyperparameter.name not in active:
                continue
            for value in map(plain_value, hyperparameter.choices):
                if (hyperparameter.name, value) in tried:
                    continue
                values = _with_value(algorithm, active, hyperparameter.name, value)
                varied = with_choices(best, {step.name: Choice(algorithm.id, values)})
                if is_allowed(space, varied):
                    yield varied


def with_choices(configuration: Configuration, choices: Mapping[str, Choice]) -> Configuration:
    """Return the configuration with these choices in place of its own."""
    return replace(
        configuration,
        choices=tuple((step, choices.get(step, own)) for step, own in configuration.choices),
    )


def _shared(space: Space) -> list[Step]:
    return [s for s in space.searched if len(s.algorithms) == 1 and _categorical(s.algorithms[0])]


def _categorical(algorithm: Algorithm) -> list[CategoricalHyperparameter]:
    found = algorithm.hyperparameters.values()
    return [h for h in found if isinstance(h, CategoricalHyperparameter) and len(h.choices) > 1]


def _with_value(
    algorithm: Algorithm, values: Mapping[str, Value], name: str, value: Value
) -> tuple[tuple[str, Value], ...]:
    """Return the values with one of them set; what that makes active has its default value."""
    active: dict[str, Value] = {}
    for hyperparameter in active_hyperparameters(algorithm.hyperparameters, active):
        own = values.get(hyperparameter.name, plain_value(hyperparameter.default_value))
        active[hyperparameter.name] = value if hyperparameter.name == name else own
    return tuple(sorted(active.items()))
