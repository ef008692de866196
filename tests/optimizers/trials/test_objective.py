"""How small a subset an objective allows."""

import pytest

from prefect_tune.optimizers.trials.objective import Objective

CLASSES = Objective(n_rows=600, n_classes=3, n_rarest=10)
NUMBERS = Objective(n_rows=600, n_classes=0, n_rarest=60)


def test_two_rows_of_each_class_are_the_smallest_subset() -> None:
    assert CLASSES.smallest_subset == 6 / 600
    CLASSES.check_subset(0.01)
    with pytest.raises(
        ValueError,
        match=r"a subset of 0.005 of 600 training rows is less than 2 rows of each of 3 classes; "
        r"subsets from 0.01 on serve",
    ):
        CLASSES.check_subset(0.005)


def test_of_numbers_it_has_two_of_each_stratum() -> None:
    assert NUMBERS.smallest_subset == pytest.approx(2 * 10 / 600)
    with pytest.raises(ValueError, match=r"less than 2 rows of each stratum; subsets from 0.0333"):
        NUMBERS.check_subset(0.03)


def test_of_few_rows_it_is_all_of_them() -> None:
    assert Objective(n_rows=5, n_classes=3, n_rarest=1).smallest_subset == 1.0


def test_of_data_that_are_not_known_any_will_do() -> None:
    assert Objective().smallest_subset is None
    Objective().check_subset(1e-9)
