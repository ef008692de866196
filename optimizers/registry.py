"""Methods by the word after `--method`, each imported when it is first made."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.admm.declaration import ADMM
from prefect_tune.optimizers.methods.bapi.declaration import BAPI
from prefect_tune.optimizers.methods.declarations import (
    BOHB,
    ERS,
    ESMBO,
    HALVING,
    HYPERBAND,
    JOPT,
    RANDOM_SEARCH,
    SMAC,
    TPE,
)
from prefect_tune.optimizers.methods.fabolas.declaration import EI, ES, FABOLAS, MTBO
from prefect_tune.optimizers.methods.flash.declaration import FLASH
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
"""By name, in the order in which they are shown; `register` adds to it."""

DEFAULT_METHOD = FLASH.name


def register(method: Method) -> None:
    """Add a method to those that can be named.

    Raises:
        ValueError: If there is another one of that name.
    """
    METHODS.register(method)


def method_named(name: str) -> Method:
    """Return the method of that name.

    Raises:
        UnknownName: If there is none, or it cannot be used.
    """
    return METHODS.named(name)


def load_method(name: str) -> "type[Optimizer]":
    """Import the class that implements a method.

    Raises:
        UnknownName: If there is no such method.
    """
    return loaded(method_named(name).implementation)


def make_optimizer(
    method: str,
    space: "Space",
    seed: int,
    objective: "Objective | None" = None,
    options: Mapping[str, Any] | None = None,
) -> "Optimizer":
    """Make the optimizer of that name.

    Raises:
        UnknownName: If there is no such method, or no such option of it.
    """
    return load_method(method)(space, seed, objective, **(options or {}))
