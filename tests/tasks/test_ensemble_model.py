"""Ensembles as estimators of scikit-learn."""

import numpy as np
import pytest
from answer_worlds import hostile_models
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import estimator_checks_generator

from prefect_tune.tasks.final.ensemble import ClassEnsemble, NumberEnsemble, blend, member_output
from prefect_tune.tasks.objective.predictions import InvalidPredictions, Predictions

CHECKED = (
    ClassEnsemble([LogisticRegression(), DecisionTreeClassifier(random_state=0)], [0.75, 0.25]),
    ClassEnsemble([LinearSVC(), make_pipeline(StandardScaler(), LogisticRegression())]),
    NumberEnsemble([Ridge(), DecisionTreeRegressor(random_state=0)], [0.5, 0.5]),
)
UNCHECKED = "check_array_api_input"
"""Runs only where SCIPY_ARRAY_API was set before scipy was imported, and skips itself elsewhere."""
X = np.random.default_rng(0).random((40, 3))
Y = np.array(["no", "yes"])[np.random.default_rng(1).integers(0, 2, 40)]


def name_of(check) -> str:
    return check.func.__name__


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        pytest.param(
            *pair, id=f"{position} {name_of(pair[1])}", marks=pytest.mark.full if position else ()
        )
        for position, ensemble in enumerate(CHECKED)
        for pair in estimator_checks_generator(ensemble, mark=None)
        if name_of(pair[1]) != UNCHECKED
    ],
)
def test_an_ensemble_passes_the_checks_of_scikit_learn(estimator, check) -> None:
    check(estimator)


def test_an_ensemble_of_classifiers_predicts_what_was_blended() -> None:
    models = [LogisticRegression().fit(X, Y), LinearSVC().fit(X, Y)]
    ensemble = ClassEnsemble.of_fitted(models, [0.75, 0.25])
    votes = np.eye(2)[(models[1].predict(X) == "yes").astype(int)]
    given = [
        member_output(Predictions(votes.argmax(axis=1), score), 2)
        for score in (models[0].predict_proba(X), None)
    ]
    blended = blend(0.75 * given[0] + 0.25 * given[1], 2)
    np.testing.assert_allclose(ensemble.predict_proba(X), blended.score)
    assert (ensemble.predict(X) == np.array(["no", "yes"])[blended.label]).all()


def test_an_ensemble_of_regressors_predicts_the_weighted_mean() -> None:
    rows = np.arange(10.0)[:, None]
    models = [LinearRegression().fit(rows, k * rows[:, 0]) for k in (1, 3)]
    ensemble = NumberEnsemble.of_fitted(models, [0.75, 0.25])
    np.testing.assert_allclose(ensemble.predict(rows), 1.5 * rows[:, 0], atol=1e-12)


def test_fitting_leaves_what_was_given_as_it_was() -> None:
    given, weights = [LogisticRegression(), DecisionTreeClassifier(max_depth=2)], [3.0, 1.0]
    ensemble = ClassEnsemble(given, weights).fit(X, Y)
    assert ensemble.members is given
    assert ensemble.weights is weights
    assert not any(hasattr(member, "classes_") for member in given)
    assert ensemble.weights_.tolist() == [0.75, 0.25]
    assert [type(m) for m in ensemble.members_] == [LogisticRegression, DecisionTreeClassifier]
    assert ensemble.classes_.tolist() == ["no", "yes"]
    assert ensemble.n_features_in_ == 3


def test_a_made_ensemble_equals_a_fitted_one_and_is_not_trained() -> None:
    given = [LogisticRegression(), DecisionTreeClassifier(random_state=0)]
    fitted = ClassEnsemble(given, [0.6, 0.4]).fit(X, Y)
    models = [clone(member).fit(X, Y) for member in given]
    made = ClassEnsemble.of_fitted(models, [0.6, 0.4])
    np.testing.assert_array_equal(made.predict_proba(X), fitted.predict_proba(X))
    assert all(a is b for a, b in zip(made.members_, models, strict=True))
    again = clone(made)
    with pytest.raises(NotFittedError):
        again.predict(X)
    np.testing.assert_array_equal(again.fit(X, Y).predict_proba(X), fitted.predict_proba(X))


def test_members_that_disagree_on_classes_are_refused() -> None:
    members = [LogisticRegression().fit(X, Y), DecisionTreeClassifier().fit(X, Y == "yes")]
    with pytest.raises(ValueError, match=r"member 1 \(DecisionTreeClassifier\)"):
        ClassEnsemble.of_fitted(members, [0.5, 0.5])
    with pytest.raises(ValueError, match=r"member 0 \(Ridge\)"):
        ClassEnsemble.of_fitted([Ridge().fit(X, X[:, 0])])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], r"got \[1.0\]"),
        ([0.5, -0.5], r"\[0.5, -0.5\]"),
        ([0.0, 0.0], "not all 0"),
        ([0.5, float("nan")], "nan"),
    ],
)
def test_weights_that_are_none_are_refused(weights, message) -> None:
    members = [LogisticRegression(), DecisionTreeClassifier()]
    with pytest.raises(ValueError, match=message):
        ClassEnsemble(members, weights).fit(X, Y)
    with pytest.raises(ValueError, match=message):
        ClassEnsemble.of_fitted([member.fit(X, Y) for member in members], weights)


@pytest.mark.parametrize("name", ["Column", "ReversedClasses", "SeriesOfLabels", "NoClasses"])
def test_members_that_answer_oddly_count_as_the_plain_one(name) -> None:
    plain, odd, other = (
        model.fit(X, Y)
        for model in (hostile_models.Plain(), getattr(hostile_models, name)(), LinearSVC())
    )
    expected, found = (
        ClassEnsemble.of_fitted([model, other], [0.6, 0.4], ["no", "yes"]) for model in (plain, odd)
    )
    np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(X))
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))


def test_a_member_that_predicts_no_class_or_number_is_an_error_that_names_it() -> None:
    members = [m().fit(X, Y) for m in (hostile_models.Plain, hostile_models.NanScores)]
    with pytest.raises(InvalidPredictions, match=r"NanScores:.* nan"):
        ClassEnsemble.of_fitted(members).predict(X)
    numbers = [m().fit(X, X[:, 0]) for m in (hostile_models.Number, hostile_models.NumberNan)]
    with pytest.raises(InvalidPredictions, match=r"NumberNan:.* nan"):
        NumberEnsemble.of_fitted(numbers).predict(X)
