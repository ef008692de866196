from typing import Any, ClassVar

import pytest
from contracts.optimizer import OptimizerContract
from worlds import mixed_space

from prefect_tune.optimizers import Jopt, Objective


class TestJopt(OptimizerContract):
    method = "jopt"
    n_planted = 4


class TestJoptConditional(OptimizerContract):
    method = "jopt"
    options: ClassVar[dict[str, Any]] = {"kernel": "conditional"}
    n_planted = 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_startup": 0}, "n_startup must be >= 1"),
        ({"kernel": "linear"}, "kernel must be one_hot or conditional"),
        ({"failure_cost": "zero"}, "failure_cost must be bound or worst or chance"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Jopt(mixed_space(), 0, Objective(), **options)
