"""Predictions of any model, and trials that fail because of bad predictions."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from answer_worlds.hostile_models import Plain
from answer_worlds.own_studies import own_context, own_outcome
from sklearn.multiclass import OneVsOneClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from prefect_tune.tasks.objective.predictions import (
    InvalidPredictions,
    Predictions,
    predicted_scores,
    predictions_of,
)

X = np.random.default_rng(0).normal(size=(4, 3))


class Says:
    """A fitted model that gives the same answers for any four rows."""

    def __init__(self, label: Any, *, score: Any = None, decision: Any = None, classes: Any = None):
        self.predict = lambda _: label
        if score is not None:
            self.predict_proba = lambda _: score
        if decision is not None:
            self.decision_function = lambda _: decision
        if classes is not None:
            self.classes_ = np.array(classes)


ABC, NO_YES = np.array(["a", "b", "c"]), np.array([False, True])
LABEL = np.array(["b", "a", "c", "b"])
SCORE = np.array([[0.2, 0.7, 0.1], [0.8, 0.1, 0.1], [0.0, 0.3, 0.7], [0.1, 0.9, 0.0]])
ONE = np.array([0.5, -1.0, 2.0, -0.1])
"""Decision values of two classes."""
SEEN = np.column_stack([SCORE[:, 0], np.zeros(4), 1 - SCORE[:, 0]])
"""Probabilities by a model that never saw the second class."""
NEVER = np.finfo(np.float64).min


@pytest.mark.parametrize(
    ("classes", "label", "expected"),
    [
        (ABC, LABEL[:, None], [1, 0, 2, 1]),  # as CatBoost answers
        (ABC, LABEL.tolist(), [1, 0, 2, 1]),
        (ABC, pd.Series(LABEL, index=range(1000, 1004)), [1, 0, 2, 1]),
        (NO_YES, [1.0, 0.0, np.float32(1), True], [1, 0, 1, 1]),
        (np.array([-3, 0, 12]), [12.0, -3, 0, np.array(12)], [2, 0, 1, 2]),
        (np.empty(0), ONE[:, None], ONE),
        (np.empty(0), pd.Series(ONE, dtype="Float64"), ONE),
    ],
)
def test_labels_of_any_form_become_class_positions_or_numbers(classes, label, expected) -> None:
    found = predictions_of(Says(label), X, classes)
    assert found.label.tolist() == list(expected)
    assert found.label.dtype == (np.int32 if len(classes) else np.float64)
    assert found.score is None


@pytest.mark.parametrize(
    ("classes", "answers", "expected"),
    [
        (ABC, {"score": pd.DataFrame(SCORE)}, SCORE),
        (ABC, {"score": SCORE.tolist(), "classes": [100, 101, 102]}, SCORE),  # an encoder's codes
        (ABC, {"score": SCORE[:, ::-1], "classes": ABC[::-1]}, SCORE),
        (ABC, {"score": SEEN[:, [2, 0]], "classes": ["c", "a"]}, SEEN),
        (ABC, {"decision": SCORE[:, ::-1], "classes": ABC[::-1]}, SCORE),
        (ABC, {"decision": ONE, "classes": ["a", "c"]}, [[-d, NEVER, d] for d in ONE]),
        (NO_YES, {"decision": ONE}, np.column_stack([-ONE, ONE])),
        (NO_YES, {"decision": -ONE, "classes": [True, False]}, np.column_stack([-ONE, ONE])),
    ],
)
def test_scores_are_ordered_by_class(classes, answers, expected) -> None:
    label = LABEL if classes is ABC else ONE > 0
    found = predictions_of(Says(label, **answers), X, classes)
    assert found.score.tolist() == np.array(expected).tolist()


@pytest.mark.parametrize(
    ("classes", "model", "message"),
    [
        (ABC, Says(np.array(["a", -1, -1, "b"], dtype=object)), "-1 in 2"),
        (ABC, Says([7, 8, 9, 7]), "7 in 4"),
        (ABC, Says(LABEL[:3]), r"\(3,\)"),
        (ABC, Says(np.array(["a", np.nan, "b", "b"], dtype=object)), "nan in 1"),
        (ABC, Says(["a", pd.NA, "b", "b"]), "<NA> in 1"),
        (ABC, Says(np.column_stack([LABEL, LABEL])), r"\(4, 2\)"),
        (ABC, Says(LABEL, score=np.where(SCORE > 0.8, np.nan, SCORE)), "nan in 1"),
        (ABC, Says(LABEL, decision=np.where(SCORE > 0.8, -np.inf, SCORE)), "-inf in 1"),
        (ABC, Says(LABEL, score=SCORE[:, 1:2]), r"\(4, 1\)"),
        (ABC, Says(LABEL, score=SCORE.astype(str)), "expected numbers"),
        *(
            (np.array([0, 1]), Says([value] * 4), "in 4 of")
            for value in ("1", b"1", 0.5, 0.9999999, float("inf"), None, 2**40)
        ),
        (np.empty(0), Says([1.0, np.nan, 2.0, 3.0]), "nan in 1"),
        (np.empty(0), Says(pd.Series([1.0, pd.NA, 2.0, 3.0], dtype="Float64")), "nan in 1"),
        *(
            (np.empty(0), Says([value] * 4), "expected numbers")
            for value in (10**400, 1j, "1", None, np.datetime64(5, "ns"), np.timedelta64(5, "s"))
        ),
    ],
)
def test_invalid_prediction_is_an_error_that_names_the_value(classes, model, message) -> None:
    with pytest.raises(InvalidPredictions, match=message):
        predictions_of(model, X, classes, name="mine")


def rows_of(n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n_classes)
    rows, borders = rng.normal(size=(100, 3)), [-0.5, 0.5, 1.0][: n_classes - 1]
    return rows, np.digitize(rows[:, 0] + rng.normal(0, 0.5, 100), borders)


@pytest.mark.parametrize("n_classes", [3, 4])
def test_decision_values_of_pairs_are_not_scores_of_classes(n_classes) -> None:
    rows, y = rows_of(n_classes)
    classes, pairs = np.arange(n_classes), SVC(decision_function_shape="ovo")
    for model in (pairs, make_pipeline(make_pipeline(StandardScaler(), pairs))):
        assert predictions_of(model.fit(rows, y), rows, classes).score is None
    with pytest.raises(InvalidPredictions, match="pairs"):
        predicted_scores(model, rows, classes, "decision_function")
    for rest in (SVC(decision_function_shape="ovr"), OneVsOneClassifier(SVC())):
        assert predictions_of(rest.fit(rows, y), rows, classes).score.shape == (100, n_classes)


class ImplementsNoScores(Plain):
    def predict_proba(self, X):
        raise NotImplementedError


def test_model_with_unimplemented_probabilities_has_no_scores() -> None:
    rows, y = rows_of(2)
    assert predictions_of(ImplementsNoScores().fit(rows, y), rows, np.arange(2)).score is None


@pytest.mark.parametrize(
    ("score", "why"),
    [
        ([[0.2, 0.8], [0.5, 0.5]], ""),
        (None, "no scores"),
        ([[0.2, 0.8], [0.5, 0.7]], "row 1"),
        ([[0.2, 0.8], [-0.5, 1.5]], "row 1"),
    ],
)
def test_reason_is_given_if_scores_are_not_probabilities(score, why) -> None:
    found = Predictions(np.zeros(2, dtype=np.int32), None if score is None else np.array(score))
    assert found.are_probabilities == (not why)
    assert why in found.why_no_probabilities


@pytest.mark.slow
def test_trial_of_an_unusual_model_equals_the_plain_model_or_fails(tmp_path) -> None:
    models = ("ReversedClasses", "Plain")
    odd, plain = (own_outcome(own_context(tmp_path, model, 3, "auroc")) for model in models)
    assert odd.fold_losses == plain.fold_losses
    nan = own_context(tmp_path, "NumberNan", 0, "r2")
    for _ in range(2):  # no record of it is served
        assert "nan in 1" in own_outcome(nan).message
