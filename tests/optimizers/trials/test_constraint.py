from math import inf, nan

import pytest

from prefect_tune.optimizers.trials.objective import Constraint, violation


@pytest.mark.parametrize(
    ("bound", "measured", "excess"),
    [(10, 5, -0.5), (10, 10, 0), (10, 25, 1.5), (0, 0, 0), (0, 3, 3), (10, nan, inf)],
)
def test_an_excess_is_in_multiples_of_the_bound(bound, measured, excess) -> None:
    assert Constraint("size", bound).excess({"size": measured}) == excess


def test_what_was_not_measured_exceeds_every_bound() -> None:
    assert Constraint("size", 10).excess({}) == inf


def test_the_violation_is_the_largest_excess() -> None:
    constraints = (Constraint("size", 10), Constraint("time", 2))
    assert violation(constraints, {"size": 5, "time": 3}) == 0.5
    assert violation((), {}) == 0


@pytest.mark.parametrize("bound", [-1, inf, nan])
def test_a_bound_is_a_number_and_not_negative(bound) -> None:
    with pytest.raises(ValueError, match="must be >= 0"):
        Constraint("size", bound)
