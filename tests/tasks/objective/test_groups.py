import numpy as np
import pandas as pd

from prefect_tune.tasks.data.split import TEST, Split
from prefect_tune.tasks.objective.quantities import absent_groups, groups_of


def test_values_are_groups_and_missing_ones_are_in_none() -> None:
    column = pd.Series(["b", None, "a", "b"], dtype="category")
    numbers, names = groups_of(column, ())
    assert (list(numbers), names) == ([1, -1, 0, 1], ["a", "b"])


def test_bins_are_groups_as_far_as_they_hold_rows() -> None:
    column = pd.Series([19.0, 20, 39, 60, np.nan, 80, 81])
    numbers, names = groups_of(column, (20, 40, 60, 80))
    assert names == ["20 to 40", "60 to 80"]
    assert list(numbers) == [-1, 0, 0, 1, -1, 1, -1]


def test_groups_without_a_held_out_row_are_named_by_fold() -> None:
    column = pd.Series(list("aabbcab"))
    split = Split(np.array([0, 1, 0, 1, 0, TEST, 2]), 3, 0)
    absent, fewest = absent_groups(column, (), split)
    assert absent == {"a": [2], "c": [1, 2]}
    assert fewest == 1
