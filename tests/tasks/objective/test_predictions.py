"""Predictions of any model, and the losses that trials report of them."""

import numpy as np
import pandas as pd
import pytest
from answer_worlds import hostile_models as models
from answer_worlds.own_studies import own_context, own_outcome
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsOneClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from studies import store_of

from prefect_tune.optimizers import Evaluation
from prefect_tune.storage.keys import predictions_record
from prefect_tune.tasks.catalogue.boosting import light_gbm
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import load_split
from prefect_tune.tasks.final.ensemble import ClassEnsemble
from prefect_tune.tasks.objective.metric import metric_named
from prefect_tune.tasks.objective.predictions import (
    InvalidPredictions,
    Predictions,
    predicted_labels,
    predicted_scores,
    predictions_of,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(100, 3))
KINDS = {
    "texts": np.array(["a", "b", "c"]),
    "whole numbers": np.array([-3, 0, 12]),
    "truth values": np.array([False, True]),
    "two texts": np.array(["no", "yes"]),
}
"""Classes as the data may have them."""
of_every_kind = pytest.mark.parametrize("classes", KINDS.values(), ids=KINDS)


def target(classes: np.ndarray) -> np.ndarray:
    borders = np.quantile(X[:, 0], np.arange(1, len(classes)) / len(classes))
    return classes[np.digitize(X[:, 0] + RNG.normal(0, 0.5, len(X)), borders)]


@of_every_kind
@pytest.mark.parametrize(
    "name",
    ["Column", "SeriesOfLabels", "FrameOfLabels", "FloatLabels", "ReversedClasses", "NoClasses",
     "EncodedClasses"],
)  # fmt: skip
def test_labels_and_scores_equal_the_plain_model(name, classes) -> None:
    y = target(classes)
    found = predictions_of(getattr(models, name)().fit(X, y), X, classes)
    inner = LogisticRegression().fit(X, y)
    assert (classes[found.label] == inner.predict(X)).all()
    assert found.label.dtype == np.int32
    np.testing.assert_array_equal(found.score, inner.predict_proba(X))


@of_every_kind
def test_decision_values_follow_the_classes_in_any_order(classes) -> None:
    y = target(classes)
    one, other = (
        predictions_of(m().fit(X, y), X, classes) for m in (models.Decides, models.ReversedDecision)
    )
    assert (one.score.argmax(axis=1) == one.label).all()
    np.testing.assert_array_equal(one.score, other.score)


@pytest.mark.parametrize("n_classes", [3, 4])
def test_decision_values_of_pairs_are_no_scores_of_classes(n_classes) -> None:
    classes = np.arange(n_classes)
    y = target(classes)
    nested = make_pipeline(make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo")))
    for model in (models.OneVsOne(), nested, make_pipeline(StandardScaler(), models.OneVsOne())):
        assert predictions_of(model.fit(X, y), X, classes).score is None
    with pytest.raises(InvalidPredictions, match="pairs"):
        predicted_scores(model, X, classes, "decision_function")
    for rest in (SVC(decision_function_shape="ovr"), OneVsOneClassifier(SVC())):
        assert predictions_of(rest.fit(X, y), X, classes).score.shape == (100, n_classes)


def test_a_class_that_the_model_never_saw_has_no_chance() -> None:
    classes = KINDS["texts"]
    y = target(np.array(["a", "c"]))
    found = predictions_of(models.ReversedClasses().fit(X, y), X, classes)
    assert set(found.label.tolist()) == {0, 2}
    assert (found.score[:, 1] == 0).all()
    assert found.are_probabilities
    decided = predictions_of(models.Decides().fit(X, y), X, classes)
    assert (decided.score[:, 1] < decided.score[:, [0, 2]].min(axis=1)).all()
    assert np.isfinite(decided.score).all()


class Cautious(models.Plain):
    def predict(self, X):
        return self.classes_[(self.predict_proba(X)[:, 1] > 0.1).astype(int)]


class ImplementsNoScores(models.Plain):
    def predict_proba(self, X):
        raise NotImplementedError


def test_labels_come_from_predict_where_it_disagrees_with_the_probabilities() -> None:
    classes = KINDS["two texts"]
    model = Cautious().fit(X, target(classes))
    found = predictions_of(model, X, classes)
    assert (classes[found.label] == model.predict(X)).all()
    assert (found.label != found.score.argmax(axis=1)).any()
    bare = ImplementsNoScores().fit(X, target(classes))
    assert predictions_of(bare, X, classes).score is None


@pytest.mark.parametrize("classes", [KINDS["two texts"], KINDS["whole numbers"]])
def test_where_labels_follow_from_probabilities_rows_are_predicted_once(
    classes, monkeypatch
) -> None:
    y = target(classes)
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    boosted = light_gbm.classifier(n_estimators=3).fit(X, y)
    ensemble = ClassEnsemble.of_fitted([forest, boosted], None, tuple(classes))
    for model in (ensemble, forest, Pipeline([("model", boosted)])):
        labels, last = model.predict(X), model[-1] if isinstance(model, Pipeline) else model
        with monkeypatch.context() as patched:
            patched.setattr(type(last), "predict", None)
            found = predictions_of(model, X, classes)
        assert (classes[found.label] == labels).all()
        assert found.score == pytest.approx(model.predict_proba(X))


WRONG = {
    "Abstains": "-1 in 3", "Codes": "100 of 100", "Short": "99", "NotANumber": "nan in 1",
    "Missing": "<NA> in 1", "TwoColumns": "100, 2", "NanScores": "nan in 1",
    "InfiniteDecision": "-inf in 1", "OneProbabilityColumn": "100, 1", "ShortScores": "99",
    "TextScores": "no number",
}  # fmt: skip
"""By the name of a model: what the error has of what is wrong."""


@pytest.mark.parametrize(("name", "message"), WRONG.items())
@pytest.mark.parametrize("classes", [KINDS["texts"], KINDS["truth values"]])
def test_anything_else_is_an_error_that_names_the_model_and_the_value(
    name, message, classes
) -> None:
    model = getattr(models, name)().fit(X, target(classes))
    with pytest.raises(InvalidPredictions, match=message):
        predictions_of(model, X, classes)
    with pytest.raises(InvalidPredictions, match="mine: "):
        predictions_of(model, X, classes, name="mine")


class Says(models.Number):
    """Answers the same for each row."""

    def __init__(self, answer=None):
        self.answer = answer

    def predict(self, X):
        return [self.answer] * len(X)


@pytest.mark.parametrize(
    ("answer", "position"),
    [
        *((1.0, 1), (True, 1), (np.float32(0), 0), (np.array(1), 1)),
        *((wrong, None) for wrong in ("1", b"1", 0.5, 0.9999999, float("inf"), None, 2**40)),
    ],
)
def test_text_is_no_whole_number_and_a_fraction_no_class(answer, position) -> None:
    classes = np.array([0, 1])
    if position is None:
        with pytest.raises(InvalidPredictions, match="100 of 100"):
            predicted_labels(Says(answer), X, classes)
    else:
        assert set(predicted_labels(Says(answer), X, classes)) == {position}


@pytest.mark.parametrize("name", ["NumberColumn", "NumberList", "NumberSeries"])
def test_numbers_equal_the_plain_model(name) -> None:
    model = getattr(models, name)().fit(X, X[:, 0])
    found = predictions_of(model, X, np.empty(0))
    np.testing.assert_array_equal(found.label, model.inner_.predict(X))
    assert found.score is None


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (models.NumberNan(), "nan in 1"),
        (models.NumberMissing(), "nan in 1"),
        (models.NumberColumns(), "100, 2"),
        (models.NumberText(), "no number"),
        (Says(float("inf")), "inf in 100"),
        *((Says(answer), "no number") for answer in (10**400, 1j, "1", None, pd.NA)),
        *((Says(time), "no number") for time in (np.datetime64(5, "ns"), np.timedelta64(5, "s"))),
    ],
)
def test_numbers_that_are_none_are_named(model, message) -> None:
    with pytest.raises(InvalidPredictions, match=message):
        predictions_of(model.fit(X, X[:, 0]), X, np.empty(0))


@pytest.mark.parametrize(
    ("score", "why"),
    [
        ([[0.2, 0.8], [0.5, 0.5]], ""),
        (None, "no scores"),
        ([[0.2, 0.8], [0.5, 0.7]], "row 1"),
        ([[0.2, 0.8], [-0.5, 1.5]], "row 1"),
    ],
)
def test_scores_that_are_no_probabilities_say_why(score, why) -> None:
    found = Predictions(np.zeros(2, dtype=np.int32), None if score is None else np.array(score))
    assert found.are_probabilities == (not why)
    assert why in found.why_no_probabilities


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "n_classes"),
    [("EncodedClasses", 3), *(pytest.param(name, 2, marks=pytest.mark.full)
                              for name in ("ReversedClasses", "Column", "FrameOfLabels"))],
)  # fmt: skip
def test_a_model_that_answers_oddly_has_the_loss_of_the_plain_one(
    tmp_path, model, n_classes
) -> None:
    found = own_outcome(context := own_context(tmp_path, model, n_classes, "auroc"))
    assert isinstance(found, Evaluation), found.message
    plain = own_outcome(own_context(tmp_path, "Plain", n_classes, "auroc"))
    assert found.fold_losses == plain.fold_losses
    store, problem, metric = store_of(context), context.problem, metric_named("auroc")
    dataset, split = load_dataset(store, problem.dataset), load_split(store, problem.split)
    for fold, key in enumerate(found.predictions):
        parts = store.records.get(predictions_record(key))
        written = Predictions(parts["label"], parts["score"])
        y = dataset.y[split.held_out(fold)]
        assert metric.loss(y, written, n_classes) == found.fold_losses[fold]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "n_classes", "metric", "value"),
    [
        ("Abstains", 3, "error", "-1 in 3"),
        ("NumberNan", 0, "r2", "nan in 1"),
        ("Decides", 2, "neg_log_loss", "needs probabilities"),
    ],
)
def test_a_trial_fails_with_the_value_that_is_no_prediction(
    tmp_path, model, n_classes, metric, value
) -> None:
    failure = own_outcome(context := own_context(tmp_path, model, n_classes, metric))
    assert value in failure.message
    assert own_outcome(context).message == failure.message  # no record of it is served
