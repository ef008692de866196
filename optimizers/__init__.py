"""Search methods with an ask-and-tell interface, without Prefect, files, clock or network.

`space` declares the choices of a search, and `trials` stores the observations. `methods` contains
the methods, which use the surrogates in `models` and the acquisitions in `search`. `method` and
`options` declare a method, `registry` finds methods by name, including methods of other installed
packages, and `optimizer` defines the interface of all methods. `budget` describes the remaining
budget of a study, and `events` records the history from which a study resumes. `racing` wraps any
method and stops configurations that are clearly behind. `importance` estimates which choices of a
study mattered. `documents` converts dataclasses to JSON and back.

Names are imported on first use, because the libraries of some methods take seconds to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefect_tune.optimizers.budget import Budget
    from prefect_tune.optimizers.documents import UnknownName
    from prefect_tune.optimizers.events import (
        Asked,
        Event,
        PriorGiven,
        Retried,
        Told,
        replay,
    )
    from prefect_tune.optimizers.method import Fidelity, Method, MethodOptions, Reason
    from prefect_tune.optimizers.methods.admm.admm import Admm
    from prefect_tune.optimizers.methods.bohb import Bohb
    from prefect_tune.optimizers.methods.flash.flash import Flash
    from prefect_tune.optimizers.methods.halving import Halving, Hyperband
    from prefect_tune.optimizers.methods.references import Jopt, RandomSearch
    from prefect_tune.optimizers.methods.smac import Smac
    from prefect_tune.optimizers.methods.tpe import Tpe
    from prefect_tune.optimizers.optimizer import NotYet, Optimizer
    from prefect_tune.optimizers.options import check_options, option
    from prefect_tune.optimizers.racing import Racing
    from prefect_tune.optimizers.registry import METHODS, make_optimizer, register
    from prefect_tune.optimizers.space.algorithm import Algorithm, Flags, Step
    from prefect_tune.optimizers.space.configuration import Choice, Configuration, Query
    from prefect_tune.optimizers.space.sampling import SpaceExhausted, new_configuration
    from prefect_tune.optimizers.space.space import Path, Space, order_step
    from prefect_tune.optimizers.trials.earlier import Prior, PriorTrial, best_and_diverse
    from prefect_tune.optimizers.trials.history import History
    from prefect_tune.optimizers.trials.objective import Constraint, FailureCost, Objective
    from prefect_tune.optimizers.trials.outcome import (
        Evaluation,
        Failure,
        FailureKind,
        StepCost,
        TrialState,
    )
    from prefect_tune.optimizers.trials.trial import Trial

__all__ = [
    "METHODS",
    "Admm",
    "Algorithm",
    "Asked",
    "Bohb",
    "Budget",
    "Choice",
    "Configuration",
    "Constraint",
    "Encoding",
    "Evaluation",
    "Event",
    "Failure",
    "FailureCost",
    "FailureKind",
    "Fidelity",
    "Flags",
    "Flash",
    "Halving",
    "History",
    "Hyperband",
    "Jopt",
    "Method",
    "MethodOptions",
    "NotYet",
    "Objective",
    "Optimizer",
    "Path",
    "Prior",
    "PriorGiven",
    "PriorTrial",
    "Query",
    "Racing",
    "RandomSearch",
    "Reason",
    "Retried",
    "Smac",
    "Space",
    "SpaceExhausted",
    "Step",
    "StepCost",
    "Told",
    "Tpe",
    "Trial",
    "TrialState",
    "UnknownName",
    "best_and_diverse",
    "check_options",
    "make_optimizer",
    "new_configuration",
    "option",
    "order_step",
    "register",
    "replay",
]

_NAMES = {
    "budget": "Budget",
    "documents": "UnknownName",
    "events": "Asked Event PriorGiven Retried Told replay",
    "method": "Fidelity Method MethodOptions Reason",
    "methods.admm.admm": "Admm",
    "methods.bohb": "Bohb",
    "methods.flash.flash": "Flash",
    "methods.halving": "Halving Hyperband",
    "methods.references": "Jopt RandomSearch",
    "methods.smac": "Smac",
    "methods.tpe": "Tpe",
    "optimizer": "NotYet Optimizer",
    "options": "check_options option",
    "racing": "Racing",
    "registry": "METHODS make_optimizer register",
    "space.algorithm": "Algorithm Flags Step",
    "space.configuration": "Choice Configuration Query",
    "space.sampling": "SpaceExhausted new_configuration",
    "space.space": "Path Space order_step",
    "space.vectors": "Encoding",
    "trials.history": "History",
    "trials.objective": "Constraint FailureCost Objective",
    "trials.outcome": "Evaluation Failure FailureKind StepCost TrialState",
    "trials.earlier": "Prior PriorTrial best_and_diverse",
    "trials.trial": "Trial",
}
"""Public names by module."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


if not TYPE_CHECKING:  # a type checker knows all names from the imports above

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
