"""Methods of search behind ask and tell. Pure: no Prefect, no files, no clock, no network.

`space` declares what can be chosen, `configuration` and `encoding` turn choices into records and
vectors, `trial` and `history` hold what came of them, `optimizer` is the contract of all methods,
each method is a file, and `registry` knows them by name. Methods learn with `surrogates`, choose
with `acquisitions`, and are loaded when first touched: their libraries take seconds to import.
"""

from typing import TYPE_CHECKING, Any

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.events import Asked, ConstraintsMeasured, Event, Retried, Told, replay
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.registry import METHODS, Method, make_optimizer
from prefect_tune.optimizers.space.algorithm import Algorithm, Flags
from prefect_tune.optimizers.space.configuration import Choice, Configuration
from prefect_tune.optimizers.space.encoding import Encoding
from prefect_tune.optimizers.space.naming import UnknownName
from prefect_tune.optimizers.space.orders import order_step
from prefect_tune.optimizers.space.query import Query
from prefect_tune.optimizers.space.sampling import SpaceExhausted
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.step import Step
from prefect_tune.optimizers.trials.constraint import Constraint
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.optimizers.trials.state import TrialState
from prefect_tune.optimizers.trials.trial import Evaluation, Failure, StepCost, Trial

if TYPE_CHECKING:
    from prefect_tune.optimizers.methods.admm.admm import Admm
    from prefect_tune.optimizers.methods.flash.flash import Flash
    from prefect_tune.optimizers.methods.joint_gp import Jopt
    from prefect_tune.optimizers.methods.random_search import RandomSearch
    from prefect_tune.optimizers.methods.smac import Smac
    from prefect_tune.optimizers.methods.tpe import Tpe

__all__ = [
    "METHODS",
    "Admm",
    "Algorithm",
    "Asked",
    "Budget",
    "Choice",
    "Configuration",
    "Constraint",
    "ConstraintsMeasured",
    "Encoding",
    "Evaluation",
    "Event",
    "Failure",
    "Flags",
    "Flash",
    "History",
    "Jopt",
    "Method",
    "Objective",
    "Optimizer",
    "Path",
    "Query",
    "RandomSearch",
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
    "make_optimizer",
    "order_step",
    "replay",
]

_METHODS = {method.class_name: method for method in METHODS.values()}


def __getattr__(name: str) -> Any:
    if name in _METHODS:
        return _METHODS[name].load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
