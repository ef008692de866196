"""Methods by the word after `--method`, each imported when it is first made."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.space.naming import UnknownName
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.objective import Objective

__all__ = ["METHODS", "Method", "make_optimizer"]


@dataclass(frozen=True, slots=True)
class Method:
    """A method that can be named.

    Attributes:
        module: Where it is, within `prefect_tune.optimizers.methods`.
        class_name: Its class there.
        purpose: One line on what it is for.
    """

    module: str
    class_name: str
    purpose: str

    def load(self) -> type[Optimizer]:
        """The class."""
        module = import_module(f"prefect_tune.optimizers.methods.{self.module}")
        loaded: type[Optimizer] = getattr(module, self.class_name)
        return loaded


METHODS: Mapping[str, Method] = {
    "flash": Method(
        "flash.flash",
        "Flash",
        "a linear model prunes the algorithms of each step, then a forest tunes what is left; for "
        "spaces of many paths, and with the cache",
    ),
    "admm": Method(
        "admm.admm",
        "Admm",
        "hyperparameters of one path and the choice of the path in turns; with limits on latency, "
        "size or fairness, which it searches inside",
    ),
    "smac": Method(
        "smac",
        "Smac",
        "a random forest over the whole conditional space; when hyperparameters matter as much as "
        "algorithms",
    ),
    "tpe": Method(
        "tpe",
        "Tpe",
        "densities of good and bad values, hyperparameter by hyperparameter (Optuna's sampler); "
        "cheap to ask, for many short trials",
    ),
    "jopt": Method(
        "joint_gp",
        "Jopt",
        "one Gaussian process over all paths and hyperparameters; what ADMM is compared with",
    ),
    "random": Method(
        "random_search",
        "RandomSearch",
        "draws from the prior; the baseline, and for as many workers as there are",
    ),
}
"""By name, in the order in which they are shown."""


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
    return METHODS[method].load()(space, seed, objective, **(options or {}))
