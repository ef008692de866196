import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC

from prefect_tune.tasks.ensembling import (
    ClassEnsemble,
    NumberEnsemble,
    blend,
    greedy_picks,
    shares,
    weights_of,
)
from prefect_tune.tasks.objective.metric import Predictions

Y = np.array([1.0, 0.0, 1.0, 0.0])


def brier(mean: np.ndarray) -> float:
    return float(np.mean((mean[:, 0] - Y) ** 2))


def test_the_worked_example_of_the_sheet() -> None:
    p1, p2, p3 = [0.9, 0.2, 0.6, 0.4], [0.4, 0.1, 0.9, 0.6], [0.7, 0.6, 0.8, 0.2]
    members = [np.array(p)[:, None] for p in (p1, p2, p3)]
    picks, losses = greedy_picks(members, brier, 5)
    assert picks == [0, 0, 2, 0, 0]
    assert losses == pytest.approx([0.0925, 0.0925, 0.090278, 0.089375, 0.0893], abs=1e-6)
    assert weights_of(picks) == {0: 0.8, 2: 0.2}


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 12))
def test_each_pick_is_the_best_of_all_at_its_place(seed: int, n: int, size: int) -> None:
    members = list(np.random.default_rng(seed).random((n, 4, 1)))
    members.sort(key=brier)
    picks, losses = greedy_picks(members, brier, size)
    assert 1 <= len(picks) == len(losses) <= size
    assert losses[-1] == min(losses)
    for k in range(1, len(picks)):
        before = [members[i] for i in picks[:k]]
        best = min(brier(np.mean([*before, m], axis=0)) for m in members)
        assert losses[k] == pytest.approx(best)


def test_models_without_probabilities_vote() -> None:
    label = np.array([0, 1, 1], dtype=np.int32)
    votes = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    decision = np.array([[1.5, -1.5], [-0.2, 0.2], [-3.0, 3.0]])
    assert (shares(Predictions(label), 2) == votes).all()
    assert (shares(Predictions(label, decision), 2) == votes).all()
    chances = np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]])
    assert (shares(Predictions(label, chances), 2) == chances).all()
    assert (blend(chances, 2).label == label).all()


def test_an_ensemble_of_classifiers_predicts_what_was_blended() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.random((40, 3)), np.array(["no", "yes"])[rng.integers(0, 2, 40)]
    models = [LogisticRegression().fit(X, y), LinearSVC().fit(X, y)]
    ensemble = ClassEnsemble(models, [0.75, 0.25])
    votes = np.eye(2)[(models[1].predict(X) == "yes").astype(int)]
    expected = 0.75 * models[0].predict_proba(X) + 0.25 * votes
    np.testing.assert_allclose(ensemble.predict_proba(X), expected)
    assert (ensemble.predict(X) == np.array(["no", "yes"])[expected.argmax(axis=1)]).all()


def test_an_ensemble_of_regressors_predicts_the_weighted_mean() -> None:
    X = np.arange(10.0)[:, None]
    models = [LinearRegression().fit(X, X[:, 0]), LinearRegression().fit(X, 3 * X[:, 0])]
    ensemble = NumberEnsemble(models, [0.5, 0.5])
    np.testing.assert_allclose(ensemble.predict(X), 2 * X[:, 0], atol=1e-12)
    numbers = Predictions(np.array([1.0, 2.0]))
    assert blend(shares(numbers, 0), 0).label.tolist() == [1.0, 2.0]
