import logging
from typing import Any, ClassVar

import optuna
import pytest
from contracts.optimizer import OptimizerContract
from worlds import mixed_space, told

from prefect_tune.optimizers import Budget, Objective, Tpe


class TestTpe(OptimizerContract):
    method = "tpe"


class TestTpeOfNothingJoint(OptimizerContract):
    method = "tpe"
    options: ClassVar[dict[str, Any]] = {"joint": "nothing"}


def test_it_says_nothing_and_leaves_optunas_logger_as_it_was(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = optuna.logging.get_verbosity()
    optimizer = Tpe(mixed_space(), 0, Objective(), n_startup=2)
    for number in range(6):
        optimizer.tell(told(number, optimizer.ask(Budget()), float(number)))
    assert optuna.logging.get_verbosity() == before == logging.INFO
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_startup": 0}, "n_startup must be >= 1"),
        ({"n_candidates": 0}, "n_candidates must be >= 1"),
        ({"joint": "all"}, "joint must be choices or groups or nothing"),
        ({"failure_cost": "zero"}, "failure_cost must be bound or worst or chance"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tpe(mixed_space(), 0, Objective(), **options)
