"""Whatever a model returns becomes labels and scores of known classes, or an error with a value."""

import re

import numpy as np
import pandas as pd
import pytest
from answer_worlds import hostile_models as models
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsOneClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

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


def target(classes: np.ndarray) -> np.ndarray:
    borders = np.quantile(X[:, 0], np.arange(1, len(classes)) / len(classes))
    return classes[np.digitize(X[:, 0] + RNG.normal(0, 0.5, len(X)), borders)]


def fitted(kind: type, classes: np.ndarray):
    return kind().fit(X, target(classes))


SAME = ("Column", "ListOfLabels", "SeriesOfLabels", "FrameOfLabels", "ObjectLabels", "FloatLabels",
        "ReversedClasses", "NoClasses", "EncodedClasses")  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SAME)
def test_labels_and_scores_are_those_of_the_plain_model(name, kind) -> None:
    classes = KINDS[kind]
    y = target(classes)
    plain, found = (
        predictions_of(getattr(models, n)().fit(X, y), X, classes) for n in ("Plain", name)
    )
    inner = LogisticRegression().fit(X, y)
    assert (classes[found.label] == inner.predict(X)).all()
    assert found.label.dtype == np.int32
    np.testing.assert_array_equal(found.label, plain.label)
    np.testing.assert_array_equal(found.score, inner.predict_proba(X))


@pytest.mark.parametrize("kind", ["whole numbers", "truth values"])
def test_a_sparse_column_of_labels_is_flattened(kind) -> None:
    model = fitted(models.SparseColumn, KINDS[kind])
    found = predicted_labels(model, X, KINDS[kind])
    assert (KINDS[kind][found] == model.inner_.predict(X)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_decision_values_follow_the_classes_in_any_order(kind) -> None:
    classes = KINDS[kind]
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
    for model in (models.OneVsOne(), make_pipeline(StandardScaler(), models.OneVsOne())):
        assert predictions_of(model.fit(X, y), X, classes).score is None
    with pytest.raises(InvalidPredictions, match="pairs"):
        predicted_scores(model, X, classes, "decision_function")
    for rest in (SVC(decision_function_shape="ovr"), OneVsOneClassifier(SVC())):
        assert predictions_of(rest.fit(X, y), X, classes).score.shape == (100, n_classes)


def test_a_class_that_the_model_never_saw_has_no_chance() -> None:
    classes = np.array(["a", "b", "c"])
    y = target(np.array(["a", "c"]))
    found = predictions_of(models.ReversedClasses().fit(X, y), X, classes)
    assert set(found.label.tolist()) == {0, 2}
    assert (found.score[:, 1] == 0).all()
    assert found.are_probabilities
    decided = predictions_of(models.Decides().fit(X, y), X, classes)
    assert (decided.score[:, 1] < decided.score[:, [0, 2]].min(axis=1)).all()
    assert np.isfinite(decided.score).all()


def test_labels_come_from_predict_where_it_disagrees_with_the_probabilities() -> None:
    class Cautious(models.Plain):
        def predict(self, X):
            return self.classes_[(self.predict_proba(X)[:, 1] > 0.1).astype(int)]

    classes = KINDS["two texts"]
    model = fitted(Cautious, classes)
    found = predictions_of(model, X, classes)
    assert (classes[found.label] == model.predict(X)).all()
    assert (found.label != found.score.argmax(axis=1)).any()


WRONG = [
    ("Abstains", "-1 in 3 of 100 rows; the classes are"),
    ("Codes", " in 100 of 100 rows; the classes are"),
    ("Short", "99 of 100 rows"),
    ("NotANumber", "nan in 1 of 100 rows"),
    ("Missing", "<NA> in 1 of 100 rows"),
    ("TwoColumns", "shape (100, 2)"),
    (
        "ProbabilitiesAsLabels",
        "shape (100, {n}); expected one label for each row",
    ),
    ("Reordered", "in another order"),
    ("OnlyOne", "for 100 rows"),
    ("NanScores", "predict_proba returned nan in 1 of 100 rows"),
    ("InfiniteDecision", "decision_function returned -inf in 1 of 100 rows"),
    ("OneProbability", "predict_proba returned shape (100,); expected a column for each of {n}"),
    ("OneProbabilityColumn", "predict_proba returned shape (100, 1); expected a column for each"),
    ("ShortScores", "predict_proba returned 99 of 100 rows"),
    ("MoreColumns", "expected a column for each of {n} classes"),
    ("TextScores", "which is no number"),
    ("ReversedWithoutClasses", "has no classes_, and the columns of predict_proba disagree"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "message"), WRONG)
def test_anything_else_is_an_error_that_names_the_model_and_the_value(name, message, kind) -> None:
    classes = KINDS[kind]
    model = fitted(getattr(models, name), classes)
    message = re.escape(message.format(n=len(classes)))
    with pytest.raises(InvalidPredictions, match=f"{name}: .*{message}"):
        predictions_of(model, X, classes)
    with pytest.raises(InvalidPredictions, match=f"mine: .*{message}"):
        predictions_of(model, X, classes, name="mine")


def test_text_is_no_whole_number_and_a_fraction_no_class() -> None:
    class Says(models.Plain):
        answer: object

        def predict(self, X):
            return [self.answer] * len(X)

    model = fitted(Says, np.array([0, 1]))
    for answer, position in ((1.0, 1), (True, 1), (np.float32(0), 0), (np.array(1), 1)):
        model.answer = answer
        assert set(predicted_labels(model, X, np.array([0, 1]))) == {position}
    for answer in ("1", b"1", 0.5, 0.9999999, float("inf"), None, {}, 2**40):
        model.answer = answer
        with pytest.raises(InvalidPredictions, match="in 100 of 100 rows"):
            predicted_labels(model, X, np.array([0, 1]))


@pytest.mark.parametrize("name", ["NumberColumn", "NumberList", "NumberSeries"])
def test_numbers_are_those_of_the_plain_model(name) -> None:
    model = getattr(models, name)().fit(X, X[:, 0])
    found = predictions_of(model, X, np.empty(0))
    np.testing.assert_array_equal(found.label, model.inner_.predict(X))
    assert found.score is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NumberNan", "nan in 1 of 100 rows"),
        ("NumberInfinite", "inf in 1 of 100 rows"),
        ("NumberMissing", "nan in 1 of 100 rows"),
        ("NumberText", "which is no number"),
        ("NumberColumns", r"shape \(100, 2\)"),
    ],
)
def test_numbers_that_are_none_are_named(name, message) -> None:
    model = getattr(models, name)().fit(X, X[:, 0])
    with pytest.raises(InvalidPredictions, match=f"{name}: .*{message}"):
        predictions_of(model, X, np.empty(0))


@pytest.mark.parametrize("kind", ["texts", "whole numbers"])
def test_named_columns_are_scores_of_the_classes_they_name(kind) -> None:
    class Named(models.Plain):
        def predict_proba(self, X):
            return pd.DataFrame(super().predict_proba(X), columns=self.classes_).iloc[:, [2, 0, 1]]

    class NamedWithoutClasses(Named):
        classes_ = None

        def fit(self, X, y):
            super().fit(X, y)
            self.names_, self.classes_ = self.classes_, None
            return self

        def predict_proba(self, X):
            scores = pd.DataFrame(models.Plain.predict_proba(self, X), columns=self.names_)
            return scores.iloc[:, [2, 0, 1]]

    class Numbered(models.ReversedClasses):
        def predict_proba(self, X):
            return pd.DataFrame(super().predict_proba(X))

    classes, y = KINDS[kind], target(KINDS[kind])
    plain = predictions_of(models.Plain().fit(X, y), X, classes)
    for other in (Named, NamedWithoutClasses, Numbered):
        found = predictions_of(other().fit(X, y), X, classes)
        np.testing.assert_array_equal(found.score, plain.score)


def test_numbers_of_columns_do_not_change_the_order_of_whole_numbers_as_classes() -> None:
    class Numbered(models.ReversedClasses):
        def predict_proba(self, X):
            return pd.DataFrame(super().predict_proba(X), columns=[0, 1, 2])

    classes = np.arange(3)
    y = target(classes)
    found, plain = (predictions_of(m().fit(X, y), X, classes) for m in (Numbered, models.Plain))
    np.testing.assert_array_equal(found.score, plain.score)


def test_a_masked_label_is_none_even_if_its_fill_value_is_a_class() -> None:
    class Masked(models.Plain):
        def predict(self, X):
            return np.ma.masked_equal(super().predict(X), self.classes_[0])

    for kind in ("texts", "whole numbers"):
        model = fitted(Masked, KINDS[kind])
        with pytest.raises(InvalidPredictions, match="returned None in"):
            predictions_of(model, X, KINDS[kind])


def test_a_method_that_is_not_implemented_gives_no_scores() -> None:
    class Neither(models.Plain):
        def predict_proba(self, X):
            raise NotImplementedError

    class Decides(Neither):
        def decision_function(self, X):
            return self.inner_.decision_function(X)

    classes = KINDS["texts"]
    assert predictions_of(fitted(Neither, classes), X, classes).score is None
    assert predictions_of(fitted(Decides, classes), X, classes).score.shape == (100, 3)


@pytest.mark.parametrize(
    "answer", [10**400, np.datetime64(5, "ns"), np.timedelta64(5, "s"), 1j, "1", None, pd.NA]
)
def test_what_is_no_number_is_none_also_where_it_can_be_converted(answer) -> None:
    class Says(models.Number):
        def predict(self, X):
            return [answer] * len(X)

    model = Says().fit(X, X[:, 0])
    with pytest.raises(InvalidPredictions, match="in 100 of 100 rows, which is no number"):
        predictions_of(model, X, np.empty(0))


def test_frames_keep_their_rows() -> None:
    frame = pd.DataFrame(X, columns=list("abc"), index=np.arange(100)[::-1])
    classes = KINDS["two texts"]

    class Indexed(models.Plain):
        def predict(self, X):
            return pd.Series(super().predict(X), index=X.index)

    model = Indexed().fit(frame, target(classes))
    assert (classes[predicted_labels(model, frame, classes)] == model.inner_.predict(frame)).all()


def test_scores_that_are_no_probabilities_say_why() -> None:
    label = np.zeros(2, dtype=np.int32)
    assert Predictions(label, np.array([[0.2, 0.8], [0.5, 0.5]])).are_probabilities
    for score, why in (
        (None, "gives none"),
        (np.array([[0.2, 0.8], [0.5, 0.7]]), "row 1 sums to 1.2"),
        (np.array([[0.2, 0.8], [-0.5, 1.5]]), "row 1 has -0.5"),
    ):
        assert why in Predictions(label, score).why_no_probabilities
