"""Whether a model is called useless: statistics over many tables, and worked examples."""

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import Split, make_split
from prefect_tune.tasks.objective.comparison import (
    is_useless,
    over_folds,
    usefulness,
)
from prefect_tune.tasks.objective.metric import Usefulness, metric_named
from prefect_tune.tasks.objective.predictions import Predictions


def table(y: NDArray, n_classes: int = 2) -> tuple[Dataset, Split]:
    classes = tuple(range(n_classes))
    dataset = Dataset("t", "table", pd.DataFrame({"x": np.zeros(len(y))}), y, classes)
    return dataset, make_split(dataset, 3, 0.2, 0)


def compared(y: NDArray, score: NDArray, metric: str, n_classes: int = 2) -> Usefulness:
    dataset, split = table(y, n_classes)
    shown = np.stack([1 - score, score], axis=1)
    predictions = Predictions((score > 0.5).astype(np.int32), shown)
    found = usefulness(dataset, split, metric_named(metric), np.arange(len(y)), predictions)
    assert found is not None
    return found


@pytest.mark.parametrize("metric", ["auroc", "average_precision", "neg_log_loss"])
def test_chance_is_rarely_called_useful_and_skill_is(metric: str) -> None:
    rng, n = np.random.default_rng(0), 200
    y = (np.arange(n) < 20).astype(np.int32)
    scores = [np.full(n, 0.1) + 0.01 * rng.uniform(size=n) for _ in range(60)]
    useful = [not is_useless(compared(y, score, metric), None) for score in scores]
    assert sum(useful) <= 6  # 2.5 % of 60 is 1.5, and 6 is beyond three standard errors
    skilled = np.clip(0.08 + 0.25 * y * rng.uniform(size=n), 0, 1)
    assert not is_useless(compared(y, skilled, metric), None)


def test_the_best_constant_of_the_same_rows_is_the_reference() -> None:
    y = (np.arange(50) < 5).astype(np.int32)
    found = compared(y, np.zeros(50), "error")
    assert (found.loss, found.constant_loss, found.gain) == (10.0, 10.0, 0.0)
    assert (found.n_rare, found.n_found) == (0, 0)  # a tenth of the rows is not rare
    assert compared(y, np.zeros(50), "f1").constant_loss == pytest.approx(1 - 10 / 55)


def test_rows_of_the_rare_class_and_the_found_ones_are_counted() -> None:
    y = (np.arange(100) < 8).astype(np.int32)
    found = compared(y, (np.arange(100) < 3).astype(float), "error")
    assert (found.n_rare, found.n_found) == (8, 3)


def usual(gain: float, p: float) -> Usefulness:
    return Usefulness(1 - gain, 1.0, gain, gain - 0.1, gain + 0.1, p)


def test_folds_are_averaged_and_the_choice_among_configurations_is_paid_for() -> None:
    one, twenty = (over_folds([usual(0.1, 0.01), usual(0.0, 0.5)], n) for n in (1, 20))
    assert one is not None
    assert twenty is not None
    assert one.gain == pytest.approx(0.05)
    assert one.high - one.gain == pytest.approx(0.1 / np.sqrt(2))
    assert one.p == pytest.approx(0.0829, abs=1e-3)  # 1.386 standard errors
    assert twenty.p == 1.0
    assert over_folds([usual(0.1, 0.01), None], 1) is None
    assert over_folds([], 1) is None


@pytest.mark.parametrize(
    ("test", "held_out", "expected"),
    [
        (usual(0.1, 0.02), None, False),
        (usual(0.1, 0.02), usual(0.1, 0.5), True),
        (usual(0.1, 0.3), usual(0.1, 0.01), False),
        (usual(0.0, 0.5), usual(0.1, 0.0001), True),
        (None, usual(0.1, 0.02), False),
        (None, None, False),
    ],
)
def test_either_kind_of_rows_may_show_that_a_model_is_useful(test, held_out, expected) -> None:
    assert is_useless(test, held_out) is expected
