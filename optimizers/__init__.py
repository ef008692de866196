"""Methods of search behind ask and tell. Pure: no Prefect, no files, no clock, no network.

`space` declares what can be chosen and `trials` holds what was observed. Methods learn with
`surrogates`, choose with `acquisitions`, and reason about `paths`; each of the `methods` declares
itself by a `method` with its `options`, and `registry` knows them by name; it is one of the
registries that also find the declarations of installed `plugins`. `optimizer` is the contract of
all, told by a `budget` what is left; it gives a reason for what it asks for, and `events` resume
one; `racing` stands around any of them and ends by `race_rules` what is clearly behind.
`importance` says afterwards which choices mattered. The `converter` turns dataclasses of all rooms
into JSON documents and back. Everything here is loaded when first touched: the libraries of some
methods take seconds to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefect_tune.optimizers.budget import Budget
    from prefect_tune.optimizers.events import (
        Asked,
        ConstraintsMeasured,
        Event,
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
    from prefect_tune.optimizers.space.candidate_space import Encoding
    from prefect_tune.optimizers.space.configuration import Choice, Configuration, Query
    from prefect_tune.optimizers.space.equal_paths import order_step
    from prefect_tune.optimizers.space.sampling import SpaceExhausted, new_configuration
    from prefect_tune.optimizers.space.space import Path, Space
    from prefect_tune.optimizers.space.wording import UnknownName
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
    "ConstraintsMeasured",
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
    "check_options",
    "make_optimizer",
    "new_configuration",
    "option",
    "order_step",
    "register",
    "replay",
]

_HOMES = {
    "Admm": "methods.admm.admm",
    "Algorithm": "space.algorithm",
    "Asked": "events",
    "Bohb": "methods.bohb",
    "Budget": "budget",
    "Choice": "space.configuration",
    "Configuration": "space.configuration",
    "Constraint": "trials.objective",
    "ConstraintsMeasured": "events",
    "Encoding": "space.candidate_space",
    "Evaluation": "trials.outcome",
    "Event": "events",
    "Failure": "trials.outcome",
    "FailureCost": "trials.objective",
    "FailureKind": "trials.outcome",
    "Fidelity": "method",
    "Flags": "space.algorithm",
    "Flash": "methods.flash.flash",
    "Halving": "methods.halving",
    "History": "trials.history",
    "Hyperband": "methods.halving",
    "Jopt": "methods.references",
    "METHODS": "registry",
    "Method": "method",
    "MethodOptions": "method",
    "NotYet": "optimizer",
    "Objective": "trials.objective",
    "Optimizer": "optimizer",
    "Path": "space.space",
    "Query": "space.configuration",
    "Racing": "racing",
    "RandomSearch": "methods.references",
    "Reason": "method",
    "Retried": "events",
    "Smac": "methods.smac",
    "Space": "space.space",
    "SpaceExhausted": "space.sampling",
    "Step": "space.algorithm",
    "StepCost": "trials.outcome",
    "Told": "events",
    "Tpe": "methods.tpe",
    "Trial": "trials.trial",
    "TrialState": "trials.outcome",
    "UnknownName": "space.wording",
    "check_options": "options",
    "make_optimizer": "registry",
    "new_configuration": "space.sampling",
    "option": "options",
    "order_step": "space.equal_paths",
    "register": "registry",
    "replay": "events",
}
"""By name, the module below this one."""


if not TYPE_CHECKING:  # a type checker knows all names from the imports above, and no others

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
