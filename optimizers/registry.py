"""Methods by the word after `--method`."""

from collections.abc import Mapping
from typing import Any

from prefect_tune.optimizers.naming import UnknownName
from prefect_tune.optimizers.optimizer import Objective, Optimizer
from prefect_tune.optimizers.random_search import RandomSearch
from prefect_tune.optimizers.space import Space

__all__ = ["METHODS", "make_optimizer"]

METHODS: Mapping[str, type[Optimizer]] = {method.name: method for method in (RandomSearch,)}


def make_optimizer(
    method: str,
    space: Space,
    seed: int,
    objective: Objective | None = None,
    options: Mapping[str, Any] | None = None,
) -> Optimizer:
    """The optimizer of that name.

    Raises:
        UnknownName: If there is no such method, or no such option of it.
    """
    if method not in METHODS:
        raise UnknownName("method", method, METHODS)
    return METHODS[method](space, seed, objective, **(options or {}))
