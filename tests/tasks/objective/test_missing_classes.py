"""Scores of rows that lack some of the classes, as scikit-learn gives them if told all classes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from prefect_tune.tasks.objective.metric import Predictions, metric_named

Score = Callable[..., Any]
SCORES: dict[str, tuple[Score, dict[str, Any]]] = {
    "neg_log_loss": (metrics.log_loss, {}),
    "neg_brier_score": (metrics.brier_score_loss, {}),
    "d2_log_loss_score": (metrics.d2_log_loss_score, {}),
    "d2_brier_score": (metrics.d2_brier_score, {}),
    "roc_auc_ovo": (metrics.roc_auc_score, {"multi_class": "ovo"}),
    "roc_auc_ovo_weighted": (metrics.roc_auc_score, {"multi_class": "ovo", "average": "weighted"}),
    "top_k_accuracy": (metrics.top_k_accuracy_score, {}),
}


@pytest.mark.parametrize("name", SCORES)
def test_the_score_is_that_of_scikit_learn_with_all_labels(name) -> None:
    rng = np.random.default_rng(0)
    y, score = rng.choice([0, 2], 40), rng.dirichlet(np.ones(3), 40)
    compute, arguments = SCORES[name]
    expected = compute(y, score, labels=[0, 1, 2], **arguments)
    found = metric_named(name).loss(y, Predictions(score.argmax(axis=1), score), 3)
    assert found == pytest.approx(expected if name.startswith("neg_") else 1 - expected)


@pytest.mark.parametrize("name", ["roc_auc_ovr", "roc_auc_ovo_weighted", "auroc", "d2_brier_score"])
def test_a_score_that_one_class_leaves_undefined_is_no_number(name) -> None:
    score = np.random.default_rng(0).dirichlet(np.ones(3), 40)
    with pytest.raises(ValueError, match=name):
        metric_named(name).loss(np.zeros(40, int), Predictions(score.argmax(axis=1), score), 3)
