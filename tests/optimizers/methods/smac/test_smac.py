from typing import Any

import pytest
from contracts.optimizer import OptimizerContract
from worlds import mixed_space

from prefect_tune.optimizers import Objective, Smac


class TestSmac(OptimizerContract):
    method = "smac"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_startup": 0}, "n_startup must be >= 1"),
        ({"n_trees": 0}, "n_trees must be >= 1"),
        ({"min_samples_split": 1}, "min_samples_split must be >= 2"),
        ({"random_share": 1.5}, "random_share must be in"),
        ({"failure_cost": "zero"}, "failure_cost must be bound or worst or chance"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Smac(mixed_space(), 0, Objective(), **options)
