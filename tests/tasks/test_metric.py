import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from prefect_tune.optimizers import UnknownName
from prefect_tune.tasks.metric import Predictions, metric_named

RNG = np.random.default_rng(0)


def test_error_is_the_percentage_of_wrong_labels() -> None:
    y, label = np.array([0, 1, 1, 0]), np.array([0, 1, 0, 1])
    assert metric_named("error").loss(y, Predictions(label), 2) == 50.0


def test_error_of_chance_is_that_of_the_largest_class() -> None:
    objective = metric_named("error").objective(np.array([0, 0, 0, 1]))
    assert (objective.chance, objective.lower, objective.upper, objective.unit) == (
        25,
        0,
        100,
        "percent",
    )


def test_auroc_of_two_classes_is_scikit_learns() -> None:
    y, p = RNG.integers(0, 2, 50), RNG.random(50)
    score = np.column_stack([1 - p, p])
    loss = metric_named("auroc").loss(y, Predictions(np.zeros(50, dtype=np.int32), score), 2)
    assert loss == pytest.approx(1 - roc_auc_score(y, p))


def test_auroc_of_several_classes_is_one_against_the_rest_weighted() -> None:
    y, score = RNG.integers(0, 3, 60), RNG.dirichlet(np.ones(3), 60)
    loss = metric_named("auroc").loss(y, Predictions(np.zeros(60, dtype=np.int32), score), 3)
    expected = roc_auc_score(y, score, multi_class="ovr", average="weighted")
    assert loss == pytest.approx(1 - expected)


def test_auroc_of_labels_alone_is_that_of_their_ranks() -> None:
    y = np.array([0, 0, 1, 1])
    loss = metric_named("auroc").loss(y, Predictions(np.array([0, 1, 1, 1], dtype=np.int32)), 2)
    assert loss == pytest.approx(0.25)


def test_an_unknown_metric_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'auroc'"):
        metric_named("auc")
