"""Whether a method takes the options that it is given, and can be raced."""

from collections.abc import Mapping, Sequence
from typing import Any

from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.racing.racing import Racing
from prefect_tune.optimizers.registry import METHODS, make_optimizer
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.tasks.bad_input import BadInput

__all__ = ["check_method"]


def check_method(
    method: str,
    options: Mapping[str, Any],
    space: Space,
    objective: Objective | None = None,
    *,
    option: str,
    value: str | None = None,
    race: bool = False,
    start: Sequence[Configuration] = (),
) -> Optimizer:
    """Check a method's options by making it, which costs nothing; return it.

    Args:
        method: Name of the method.
        options: Its own options.
        space: What it is to search.
        objective: What it is to minimise.
        option: Name of the option that errors speak of.
        value: What was given for that option, as errors show it.
        race: Whether its configurations are to race.
        start: Those to begin with.

    Raises:
        UnknownName: If there is no such method or option.
        BadInput: If the value of an option cannot be used.
    """
    declared = METHODS.get(method)
    is_of_epochs = declared is not None and declared.fidelities == {"epochs"}
    if is_of_epochs and objective is not None and objective.epochs is None:
        raise BadInput(
            f"method {method} needs the number of epochs that is a full training",
            option="epochs",
            remedy="name it, for instance --epochs 50, or take a method without epochs, "
            "such as smac or fabolas",
        )
    try:
        made: Optimizer = make_optimizer(method, space, 0, objective, options)
    except (UnknownName, BadInput):
        raise
    except (TypeError, ValueError) as error:
        raise BadInput(str(error), option=option, value=value) from error
    if start:
        try:
            made.begin_with(start)
        except ValueError as error:
            raise BadInput(str(error), option="start", remedy="leave it out") from error
    if race:
        try:
            made = Racing(made)
        except ValueError as error:
            raise BadInput(str(error), option="race", remedy="leave it out") from error
    return made
