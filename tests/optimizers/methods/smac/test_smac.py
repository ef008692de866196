from typing import Any

import pytest
from contracts.optimizer import OptimizerContract
from worlds import mixed_space

from prefect_tune.optimizers import Budget, Objective, Smac
from prefect_tune.optimizers.space.configuration import default_configuration


class TestSmac(OptimizerContract):
    method = "smac"


def test_the_first_query_is_a_path_with_its_defaults() -> None:
    space = mixed_space()
    firsts = [Smac(space, seed).ask(Budget()).configuration for seed in range(12)]
    assert all(c == default_configuration(space, c.path) for c in firsts)
    assert len({c.path for c in firsts}) > 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_startup": 0}, "n_startup must be >= 1"),
        ({"n_trees": 0}, "n_trees must be >= 1"),
        ({"max_features": 0.0}, r"max_features must be in \(0, 1\]"),
        ({"improvement": "plain"}, "improvement must be loss or logarithm"),
        ({"min_samples_split": 1}, "min_samples_split must be >= 2"),
        ({"random_share": 1.5}, "random_share must be in"),
        ({"failure_cost": "zero"}, "failure_cost must be bound or worst or chance"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Smac(mixed_space(), 0, Objective(), **options)
