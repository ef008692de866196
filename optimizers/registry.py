"""Methods by their `--method` name, each imported on first use."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.bapi.declaration import BAPI
from prefect_tune.optimizers.methods.declarations import (
    ADMM,
    BOHB,
    ERS,
    ESMBO,
    FLASH,
    HALVING,
    HYPERBAND,
    JOPT,
    RANDOM_SEARCH,
    SMAC,
    TPE,
)
from prefect_tune.optimizers.methods.fabolas.rules import EI, ES, FABOLAS, MTBO
from prefect_tune.optimizers.plugins import Registry, loaded

if TYPE_CHECKING:
    from prefect_tune.optimizers.optimizer import Optimizer
    from prefect_tune.optimizers.space.space import Space
    from prefect_tune.optimizers.trials.objective import Objective


METHODS: Registry[Method] = Registry(
    "method",
    Method,
    {
        method.name: method
        for method in (
            FLASH,
            ADMM,
            FABOLAS,
            BAPI,
            ESMBO,
            SMAC,
            TPE,
            BOHB,
            HYPERBAND,
            HALVING,
            JOPT,
            EI,
            ES,
            MTBO,
            ERS,
            RANDOM_SEARCH,
        )
    },
)
"""Methods by name, in display order; `register` adds to them."""

DEFAULT_METHOD = FLASH.name


def register(method: Method) -> None:
    """Add a method for this process, or raise `ValueError` if its name is taken."""
    METHODS.register(method)


def method_named(name: str) -> Method:
    """Return the method of that name, or raise `UnknownName` if it is unknown or unusable."""
    return METHODS.named(name)


def load_method(name: str) -> "type[Optimizer]":
    """Import the class that implements a method, or raise `UnknownName`."""
    return loaded(method_named(name).implementation)


def make_optimizer(
    method: str,
    space: "Space",
    seed: int,
    objective: "Objective | None" = None,
    options: Mapping[str, Any] | None = None,
) -> "Optimizer":
    """Make the optimizer of that name, or raise `UnknownName` for the method or an option."""
    return load_method(method)(space, seed, objective, **(options or {}))
