"""Losses on test rows: scikit-learn's, or none where the rows leave the metric undefined."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.metrics import f1_score, recall_score

from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.fitting.final_scoring import LossOnTest, loss_on_test
from prefect_tune.tasks.objective.metric import metric_named


class LastRows:
    """A split whose test rows are the last ten."""

    def held_out(self, _: int) -> np.ndarray:
        return np.arange(20, 30)


class FirstColumn(DummyClassifier):
    """Predicts the first column."""

    def predict(self, X: Any) -> Any:
        return self.classes_[np.asarray(X)[:, 0].astype(int)]


def scored(name: str, test: list[int], predicted: list[int], classes: Any) -> LossOnTest:
    y = np.array([*np.arange(20) % len(classes), *test])
    X = pd.DataFrame({"a": [*y[:20], *predicted]})
    model = FirstColumn(strategy="uniform", random_state=0).fit(X, np.array(classes)[y])
    dataset = Dataset("d", "table", X, y.astype(np.int32), tuple(classes))
    return loss_on_test(model, dataset, LastRows(), metric_named(name))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["recall", "average_precision", "roc_auc", "auroc", "d2_log_loss_score"]
)
def test_without_a_row_of_the_positive_class_it_is_undefined(name) -> None:
    found = scored(name, [0] * 10, [0, 1] * 5, ["no", "yes"])
    assert found.loss is None
    assert "the test rows have no row of class yes" in found.undefined
    assert name in found.undefined


def test_without_a_true_or_predicted_positive_f1_is_undefined_and_with_one_it_is_0() -> None:
    assert scored("f1", [0] * 10, [0] * 10, ["no", "yes"]).loss is None
    y, predicted = [0] * 10, [0, 1] * 5
    expected = 1 - f1_score(y, predicted)
    assert scored("f1", y, predicted, ["no", "yes"]) == LossOnTest(expected)


def test_a_positive_that_is_never_predicted_is_a_score_of_0() -> None:
    for name in ("recall", "precision", "f1"):
        assert scored(name, [0, 1] * 5, [0] * 10, ["no", "yes"]) == LossOnTest(1.0)


def test_a_class_without_rows_is_no_part_of_a_mean() -> None:
    y, predicted = [0, 2] * 5, [0, 1, 2, 2, 0] * 2
    found = scored("recall_macro", y, predicted, ["a", "b", "c"])
    assert "no row of class b; recall_macro" in found.undefined
    weighted = recall_score(y, predicted, average="weighted", zero_division=0)
    assert scored("recall_weighted", y, predicted, ["a", "b", "c"]).loss == 1 - weighted
