"""Methods of search behind ask and tell. Pure: no Prefect, no files, no clock, no network.

`space` declares what can be chosen, `configuration` and `encoding` turn choices into records and
vectors, `trial` and `history` hold what came of them, `optimizer` is the contract of all methods,
each method is a file, and `registry` knows them by name.
"""

from prefect_tune.optimizers.configuration import Choice, Configuration, Query
from prefect_tune.optimizers.encoding import Encoding
from prefect_tune.optimizers.history import History
from prefect_tune.optimizers.naming import UnknownName
from prefect_tune.optimizers.optimizer import (
    Asked,
    Budget,
    Event,
    Objective,
    Optimizer,
    Retried,
    SpaceExhausted,
    Told,
    replay,
)
from prefect_tune.optimizers.random_search import RandomSearch
from prefect_tune.optimizers.registry import METHODS, make_optimizer
from prefect_tune.optimizers.space import Algorithm, Flags, Path, Space, Step
from prefect_tune.optimizers.trial import Evaluation, Failure, StepCost, Trial, TrialState

__all__ = [
    "METHODS",
    "Algorithm",
    "Asked",
    "Budget",
    "Choice",
    "Configuration",
    "Encoding",
    "Evaluation",
    "Event",
    "Failure",
    "Flags",
    "History",
    "Objective",
    "Optimizer",
    "Path",
    "Query",
    "RandomSearch",
    "Retried",
    "Space",
    "SpaceExhausted",
    "Step",
    "StepCost",
    "Told",
    "Trial",
    "TrialState",
    "UnknownName",
    "make_optimizer",
    "replay",
]
