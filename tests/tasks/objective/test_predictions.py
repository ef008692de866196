"""Predictions of any model, and the losses that trials report of them."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from answer_worlds import hostile_models as models
from answer_worlds.own_studies import LABELS, own_context, own_outcome, rows
from answer_worlds.sklearn_losses import Judged, sklearn_loss
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsOneClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from studies import store_of

from prefect_tune.optimizers import Evaluation
from prefect_tune.optimizers.space.configuration import default_choice
from prefect_tune.storage.keys import predictions_record
from prefect_tune.tasks.catalogue.boosting import light_gbm
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import load_split
from prefect_tune.tasks.final.ensemble import ClassEnsemble
from prefect_tune.tasks.fitting.fitting import FoldData, fit_model
from prefect_tune.tasks.fitting.recipe import MatrixSummary, recipe
from prefect_tune.tasks.objective.metric import METRICS, metric_named
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SAME)
def test_labels_and_scores_equal_the_plain_model(name, kind) -> None:
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
    nested = make_pipeline(make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo")))
    for model in (models.OneVsOne(), nested, make_pipeline(StandardScaler(), models.OneVsOne())):
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


@pytest.mark.parametrize("name", ["RandomForestClassifier", "lightgbm", "pipeline", "ensemble"])
@pytest.mark.parametrize("kind", ["two texts", "whole numbers"])
def test_where_labels_follow_from_probabilities_rows_are_predicted_once(
    name, kind, monkeypatch
) -> None:
    classes = KINDS[kind]
    forest = RandomForestClassifier(5, random_state=0).fit(X, target(classes))
    boosted = light_gbm.classifier(n_estimators=3).fit(X, target(classes))
    model = {
        "RandomForestClassifier": forest,
        "lightgbm": boosted,
        "pipeline": Pipeline([("model", boosted)]),
        "ensemble": ClassEnsemble.of_fitted([forest, boosted], None, tuple(classes)),
    }[name]
    labels = model.predict(X)
    monkeypatch.setattr(type(model), "predict", None)
    found = predictions_of(model, X, classes)
    assert (classes[found.label] == labels).all()
    assert found.score == pytest.approx(model.predict_proba(X))


WRONG = {
    "Abstains": "-1 in 3 of 100", "Codes": "100 of 100", "Short": "(99,)",
    "NotANumber": "nan in 1", "Missing": "<NA> in 1", "TwoColumns": "(100, 2)",
    "OnlyOne": "(100,)", "NanScores": "predict_proba returned nan",
    "InfiniteDecision": "decision_function returned -inf", "OneProbabilityColumn": "(100, 1)",
    "ShortScores": "expected (100, {n})", "TextScores": "no number",
}  # fmt: skip
"""By the name of a model: what the error has of what is wrong."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "message"), WRONG.items())
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
    for answer in ("1", b"1", 0.5, 0.9999999, float("inf"), None, 2**40):
        model.answer = answer
        with pytest.raises(InvalidPredictions, match="100 of 100"):
            predicted_labels(model, X, np.array([0, 1]))


@pytest.mark.parametrize("name", ["NumberColumn", "NumberList", "NumberSeries"])
def test_numbers_equal_the_plain_model(name) -> None:
    model = getattr(models, name)().fit(X, X[:, 0])
    found = predictions_of(model, X, np.empty(0))
    np.testing.assert_array_equal(found.label, model.inner_.predict(X))
    assert found.score is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NumberNan", "nan in 1"),
        ("NumberInfinite", "inf in 1"),
        ("NumberMissing", "nan in 1"),
        ("NumberText", "no number"),
        ("NumberColumns", r"\(100, 2\)"),
    ],
)
def test_numbers_that_are_none_are_named(name, message) -> None:
    model = getattr(models, name)().fit(X, X[:, 0])
    with pytest.raises(InvalidPredictions, match=f"{name}: .*{message}"):
        predictions_of(model, X, np.empty(0))


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
    with pytest.raises(InvalidPredictions, match="no number"):
        predictions_of(model, X, np.empty(0))


def test_scores_that_are_no_probabilities_say_why() -> None:
    label = np.zeros(2, dtype=np.int32)
    assert Predictions(label, np.array([[0.2, 0.8], [0.5, 0.5]])).are_probabilities
    for score, why in (
        (None, "no scores"),
        (np.array([[0.2, 0.8], [0.5, 0.7]]), "row 1"),
        (np.array([[0.2, 0.8], [-0.5, 1.5]]), "row 1"),
    ):
        assert why in Predictions(label, score).why_no_probabilities


CLASS_METRICS = [name for name, metric in METRICS.items() if metric.target == "classes"]
NUMBER_METRICS = [name for name in METRICS if name not in CLASS_METRICS]


def unique_models():
    """Every model of the catalogue once, with the kind of target that it predicts."""
    found = {}
    for space in SPACES.values():
        for algorithm in space.steps[-1].algorithms:
            key = (space.target, algorithm.import_path, str(dict(algorithm.fixed)))
            found.setdefault(key, (space.target, algorithm))
    usual = {"gaussian_nb", "kernel_svm", "k_nearest", "ridge"}
    return [
        pytest.param(
            *pair,
            id=f"{pair[1].id}-{key[1]}",
            marks=() if pair[1].id in usual else pytest.mark.full,
        )
        for key, pair in found.items()
    ]


def check_all(y: np.ndarray, predictions: Predictions, n_classes: int) -> None:
    """Every metric has scikit-learn's loss of predictions, or raises where that has none."""
    label, score = predictions.label, predictions.score
    cases = [(name, 1) for name in (CLASS_METRICS if n_classes else NUMBER_METRICS)]
    cases += [(name, 0) for name in CLASS_METRICS if n_classes == 2]
    for name, positive in cases:
        expected = sklearn_loss(name, Judged(y, label, score, n_classes, positive))
        metric = metric_named(name, positive)
        if expected is None:
            with pytest.raises(ValueError, match=r".+"):
                metric.loss(y, predictions, n_classes)
        else:
            assert metric.loss(y, predictions, n_classes) == pytest.approx(expected), name


@pytest.mark.slow
@pytest.mark.parametrize(("target", "algorithm"), unique_models())
def test_every_metric_of_a_model_of_the_catalogue_is_scikit_learns(target, algorithm) -> None:
    for n_classes, labels in LABELS.items() if target == "classes" else [(0, None)]:
        X, y = rows(n_classes)
        is_frame = algorithm.flags.few_categories or "boosting" in algorithm.import_path
        matrix = pd.DataFrame(X, columns=list("abcd")) if is_frame else X
        train, held_out = (matrix[:80], matrix[80:])
        given, classes = (y[:80], np.empty(0)) if labels is None else (labels[y[:80]], labels)
        summary = replace(MatrixSummary.of(train), n_classes=n_classes)
        how = recipe(algorithm, default_choice(algorithm), summary, balanced=False)
        _, predictions = fit_model(how, 0, FoldData(train, held_out, given, classes))
        check_all(y[80:], predictions, n_classes)


def written(context, evaluation: Evaluation):
    """True values and written predictions of each fold."""
    store, problem = store_of(context), context.problem
    dataset, split = load_dataset(store, problem.dataset), load_split(store, problem.split)
    for fold, key in enumerate(evaluation.predictions):
        parts = store.records.get(predictions_record(key))
        yield dataset.y[split.held_out(fold)], Predictions(parts["label"], parts.get("score"))


def check_written(context, evaluation: Evaluation) -> None:
    name, positive = context.problem.metric, context.problem.positive
    n_classes = len(load_dataset(store_of(context), context.problem.dataset).classes)
    folds = list(written(context, evaluation))
    expected = [
        sklearn_loss(name, Judged(y, p.label, p.score, n_classes, positive)) for y, p in folds
    ]
    assert evaluation.loss == pytest.approx(np.mean(expected))
    check_all(*folds[0], n_classes)


HARMLESS = ["Column", "ReversedClasses", "NoClasses"]
HARMLESS += [
    pytest.param(name, marks=pytest.mark.full)
    for name in ("ListOfLabels", "SeriesOfLabels", "FrameOfLabels", "ObjectLabels",
                 "EncodedClasses", "FloatLabels")
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [pytest.param(2, marks=pytest.mark.full), 3])
@pytest.mark.parametrize("model", HARMLESS)
def test_a_model_that_answers_oddly_has_the_loss_of_the_plain_one(
    tmp_path, model, n_classes
) -> None:
    metric = "auroc" if model.endswith("Classes") else "error"
    found = own_outcome(context := own_context(tmp_path, model, n_classes, metric))
    assert isinstance(found, Evaluation), found.message
    check_written(context, found)
    plain = own_outcome(own_context(tmp_path, "Plain", n_classes, metric))
    assert found.fold_losses == plain.fold_losses


@pytest.mark.slow
@pytest.mark.parametrize("model", ["DuckTyped", "Decides", "ReversedDecision", "OneVsOne"])
@pytest.mark.parametrize("n_classes", [pytest.param(2, marks=pytest.mark.full), 3])
def test_scores_that_are_no_probabilities_are_taken_for_none(tmp_path, model, n_classes) -> None:
    found = own_outcome(context := own_context(tmp_path, model, n_classes, "auroc"))
    assert isinstance(found, Evaluation), found.message
    check_written(context, found)
    needy = own_outcome(own_context(tmp_path, model, n_classes, "neg_log_loss"))
    assert "needs probabilities" in needy.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "n_classes", "value"),
    [
        ("Abstains", 3, "-1 in 3"),
        ("Abstains", 2, "-1 in 3"),
        ("Short", 2, "(31,); expected (32,)"),
        ("NanScores", 3, "nan in 1"),
        ("OneProbabilityColumn", 2, "(32, 1)"),
        ("NumberNan", 0, "nan in 1"),
        ("NumberColumns", 0, "(32, 2)"),
    ],
)
def test_a_trial_fails_with_the_value_that_is_no_prediction(
    tmp_path, model, n_classes, value
) -> None:
    metric = "error" if n_classes else "r2"
    failure = own_outcome(context := own_context(tmp_path, model, n_classes, metric))
    assert failure.step == "fit model"
    assert "own: predict" in failure.message
    assert value in failure.message
    assert own_outcome(context).message == failure.message  # no record of it is served
