"""Ensembles: the choice of members and kind, and the model as a scikit-learn estimator."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from answer_worlds import hostile_models
from held_out_worlds import held_out_of, noisy_classes
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import estimator_checks_generator

from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.tasks.final.ensemble import (
    KINDS,
    ClassEnsemble,
    FitLimit,
    HeldOut,
    NumberEnsemble,
    agnostic_weights,
    best_kind,
    blend,
    choose,
    greedy_picks,
    member_output,
    nested_losses,
    predict_held_out,
    sample,
    stratified_parts,
)
from prefect_tune.tasks.objective.predictions import InvalidPredictions, Predictions

BOOTSTRAPS = Bootstraps(200, 0.5)


def chosen(kind, held_out: HeldOut, limit: FitLimit | None = None):
    return choose(kind, held_out, 32, BOOTSTRAPS, np.random.default_rng(0), limit=limit)


def voters() -> HeldOut:
    y, predicted = noisy_classes(20, 90, 0.7, np.random.default_rng(0))
    return held_out_of(y, predicted, "error", fold=np.arange(90) % 3)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_losses_match_the_predictions_of_the_ensemble(kind) -> None:
    held_out = voters()
    choice = chosen(kind, held_out)
    assert choice.kind == kind
    assert sum(choice.weights.values()) == pytest.approx(1)
    predicted = np.concatenate([p.label for p in predict_held_out(choice, held_out)])
    labels = np.array([np.concatenate([p.label for p in of]) for of in held_out.predictions])
    weights = np.array([choice.weights.get(i, 0) for i in range(len(held_out))])
    assert (weights @ labels > 0.5).astype(int).tolist() == predicted.tolist()
    y = held_out.dataset.y[np.concatenate(held_out.rows)]
    assert 100 * np.mean(predicted != y) == pytest.approx(choice.losses[-1])


def test_useless_greedy_selection_ends_with_the_best_model_alone() -> None:
    y = np.arange(30) % 2
    held_out = held_out_of(y, np.stack([1 - y, np.zeros(30, dtype=int), y]), "error")
    choice = chosen("greedy", held_out)
    assert (choice.kind, choice.weights) == ("single", {2: 1.0})
    assert chosen("agnostic", held_out).kind == "agnostic"  # whatever its loss


@pytest.mark.parametrize("kind", ["greedy", "agnostic"])
def test_chosen_members_can_be_fitted_within_the_time_limit(kind) -> None:
    held_out = voters()
    seconds = np.random.default_rng(1).uniform(0.5, 2.0, len(held_out))
    choice = chosen(kind, held_out, FitLimit(seconds, 4.0))
    free = chosen(kind, held_out)
    assert seconds[list(free.weights)].sum() > 4.0 >= seconds[list(choice.weights)].sum()
    assert sum(choice.weights.values()) == pytest.approx(1)
    predicted = predict_held_out(choice, held_out)
    assert held_out.fold_losses(predicted).mean() == pytest.approx(choice.losses[-1])


def test_single_model_is_evaluated_by_raw_scores_instead_of_votes() -> None:
    y = np.array([0, 0, 1, 1, 0, 1])
    values = np.array([[-3.0, -2.5, -1.0, 0.5, -2.0, 2.0]])  # no probabilities; all in order
    held_out = held_out_of(y, np.stack([-values, values], axis=2), "auroc")
    choice = chosen("single", held_out)
    assert choice.losses == (0.0,)
    assert held_out.fold_losses(predict_held_out(choice, held_out)).tolist() == [0.0]
    assert held_out.fold_losses(held_out.blended(np.ones(1)))[0] > 0  # by votes


WRONG = np.array([[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 1, 1]])
"""Which of four rows each of three models gets wrong."""
CLASSES = np.array([0, 1, 0, 1])
FOUR_ROWS = np.where(WRONG, 1 - CLASSES, CLASSES)


def weights_of(held_out: HeldOut, n: int = 20_000, share: float = 1.0) -> np.ndarray:
    return agnostic_weights(held_out, Bootstraps(n, share), np.random.default_rng(0))


def enumerated(loss: Callable, n_models: int, draws: list[tuple[int, ...]]) -> np.ndarray:
    """Return how often each model is the best if each bootstrap counts once."""
    found = np.zeros(n_models)
    for drawn in draws:
        losses = np.array([loss(model, drawn) for model in range(n_models)])
        is_best = losses <= losses.min() + 1e-12
        found += is_best / is_best.sum()
    return found / len(draws)


@pytest.mark.parametrize(
    ("share", "expected"),
    [(1.0, [0.191406, 0.617188, 0.191406]), (0.5, [0.229167, 0.541667, 0.229167])],
)
def test_weights_agree_with_an_enumeration_of_all_resamples(
    share: float, expected: list[float]
) -> None:
    """Weights from 20,000 bootstraps are accurate to 0.005, at least four standard errors."""
    draws = list(product(range(4), repeat=round(4 * share)))
    exact = enumerated(lambda m, drawn: sum(WRONG[m, i] for i in drawn), 3, draws)
    assert exact == pytest.approx(expected, abs=1e-6)
    weights = weights_of(held_out_of(CLASSES, FOUR_ROWS, "error"), share=share)
    assert weights == pytest.approx(exact, abs=0.005)


def test_folds_have_equal_weight_in_each_bootstrap() -> None:
    fold = np.array([0, 0, 0, 1])  # drawn within the fold: the last row is in all bootstraps
    draws = [(*drawn, 3) for drawn in product(range(3), repeat=3)]
    exact = enumerated(
        lambda m, d: np.mean([WRONG[m, i] for i in d[:3]]) + WRONG[m, d[3]], 3, draws
    )
    weights = weights_of(held_out_of(CLASSES, FOUR_ROWS, "error", fold=fold))
    assert weights == pytest.approx(exact, abs=0.005)


@pytest.mark.slow
def test_auroc_is_resampled_within_classes() -> None:
    y = np.array([0, 0, 0, 1, 1])
    scores = np.array(
        [[0.1, 0.6, 0.4, 0.5, 0.7], [0.3, 0.2, 0.8, 0.6, 0.9], [0.1, 0.2, 0.3, 0.2, 0.8]]
    )
    draws = [(*a, *b) for a in product(range(3), repeat=3) for b in product((3, 4), repeat=2)]
    exact = enumerated(lambda m, d: -roc_auc_score(y[list(d)], scores[m, list(d)]), 3, draws)
    weights = weights_of(held_out_of(y, np.stack([1 - scores, scores], axis=2), "auroc"))
    assert weights == pytest.approx(exact, abs=0.015)


def test_models_without_probabilities_vote() -> None:
    label = np.array([0, 1, 1], dtype=np.int32)
    votes = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    decision = np.array([[1.5, -1.5], [-0.2, 0.2], [-3.0, 3.0]])
    assert (member_output(Predictions(label), 2) == votes).all()
    assert (member_output(Predictions(label, decision), 2) == votes).all()
    chances = np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]])
    assert (member_output(Predictions(label, chances), 2) == chances).all()
    assert (blend(chances, 2).label == label).all()


def test_lowest_class_wins_among_equal_weights() -> None:
    mean = np.array([[0.3, 0.1 + 0.2, 0.0], [0.2, 0.3, 0.1 + 0.2]])
    assert (mean.argmax(axis=1) == [1, 2]).all()  # what plain arithmetic would say
    assert blend(mean, 3).label.tolist() == [0, 1]


def test_member_picked_several_times_is_fitted_once() -> None:
    limit = FitLimit(np.array([2.0, 1.0, 1.5]), 3.2)
    assert [limit.allows([0, 0, 0], i) for i in range(3)] == [True, True, False]
    assert [limit.allows([0, 1], i) for i in range(3)] == [True, True, False]


def test_greedy_picks_match_the_worked_example() -> None:
    columns = ([0.9, 0.2, 0.6, 0.4], [0.4, 0.1, 0.9, 0.6], [0.7, 0.6, 0.8, 0.2])
    members = [np.array(column)[:, None] for column in columns]
    true = np.array([1.0, 0.0, 1.0, 0.0])
    picks, losses = greedy_picks(members, lambda mean: np.mean((mean[:, 0] - true) ** 2), 5)
    assert picks == [0, 0, 2, 0, 0]
    assert losses == pytest.approx([0.0925, 0.0925, 0.090278, 0.089375, 0.0893], abs=1e-6)


def estimated(held_out: HeldOut, size: int = 32, seed: int = 0) -> dict[str, float]:
    sequence = np.random.SeedSequence(seed)
    return dict(nested_losses(held_out, size, Bootstraps(100, 0.5), sequence))


@pytest.mark.slow
def test_best_kind_of_ensemble_is_chosen() -> None:
    fold = np.arange(120) % 3
    y, predicted = noisy_classes(30, 120, 0.7, np.random.default_rng(1))
    one_is_right = held_out_of(y, np.vstack([predicted, y]), "error", fold=fold)
    assert best_kind(estimated(one_is_right)) == "single"
    # Errors of two cancel in shares that no count of bootstraps finds: the first is always better.
    rng = np.random.default_rng(2)
    y, error = rng.normal(size=(2, 120))
    two = np.stack([y + error, y - 3 * error, *(y + 4 * rng.normal(size=(20, 120)))])
    assert best_kind(estimated(held_out_of(y, two, "r2", fold=fold))) == "greedy"
    alike = y + rng.normal(size=(60, 120))
    assert best_kind(estimated(held_out_of(y, alike, "r2", fold=fold), size=2)) == "agnostic"


def test_simplest_kind_of_ensemble_wins_ties() -> None:
    assert best_kind({"single": 0.3, "greedy": 0.1 + 0.2, "agnostic": 0.3}) == "single"
    assert best_kind({"single": 0.1 + 0.2, "greedy": 0.3, "agnostic": 0.3}) == "single"


@pytest.mark.full
def test_estimated_loss_of_a_choice_among_noise_is_unbiased() -> None:
    """The mean of 6 estimates has a standard error of 50/sqrt(6*150) = 1.7 percent."""
    nested, on_own_rows = [], []
    for seed in range(6):
        y, predicted = noisy_classes(60, 150, 0.5, np.random.default_rng(seed))
        held_out = held_out_of(y, predicted, "error", fold=np.arange(150) % 3)
        nested.append([*(losses := estimated(held_out, seed=seed)).values(), min(losses.values())])
        on_own_rows.append([chosen(kind, held_out).losses[-1] for kind in KINDS])
    assert np.abs(np.mean(nested, axis=0) - 50).max() < 5
    assert (np.mean(on_own_rows, axis=0) < 42).all()  # what judging on the same rows would say


@pytest.mark.slow
def test_loss_of_ensemble_kinds_is_defined_even_if_some_parts_lack_a_class() -> None:
    rng = np.random.default_rng(0)
    y, fold = np.zeros(90, dtype=int), np.arange(90) % 3
    y[:9] = 1  # three in each fold, so that two of its five parts have none
    score = np.clip(0.5 + 0.1 * y + 0.2 * rng.normal(size=(10, 90)), 0, 1)
    losses = estimated(held_out_of(y, np.stack([1 - score, score], axis=2), "auroc", fold=fold))
    assert set(losses) == set(KINDS)
    assert all(0 <= loss <= 1 for loss in losses.values())


@given(st.integers(0, 99), st.integers(3, 60), st.integers(1, 4), st.integers(2, 5))
def test_rows_are_spread_evenly_within_folds_and_classes(seed, m, n_folds, n_parts) -> None:
    rng = np.random.default_rng(seed)
    y, fold = rng.permutation(np.arange(m) % 3), rng.integers(-1, n_folds, m)
    parts = stratified_parts(held_out_of(y, y[None], "error", fold=fold), n_parts, rng)
    assert ((parts == -1) == (fold == -1)).all()
    for k in range(n_folds):
        for rows in (fold == k, *((fold == k) & (y == c) for c in range(3))):
            counts = np.bincount(parts[rows], minlength=n_parts)
            assert counts.max() - counts.min() <= 1


def test_rows_of_one_group_stay_together() -> None:
    groups = np.repeat(np.arange(20), 3)
    y = groups % 2
    held_out = held_out_of(y, y[None], "error", fold=y, groups=groups)
    parts = stratified_parts(held_out, 5, np.random.default_rng(0))
    assert all(len(set(parts[groups == g])) == 1 for g in range(20))
    assert np.bincount(parts).tolist() == [12] * 5


@pytest.mark.parametrize(
    ("n_rows", "n_rare", "expected"), [(9_000, 500, 9_000), (25_000, 500, 8_333), (40_000, 99, 0)]
)
def test_sample_of_many_held_out_rows_has_enough_rows_of_each_class(
    n_rows, n_rare, expected
) -> None:
    y = (np.arange(n_rows) < n_rare).astype(int)
    held_out = held_out_of(y, y[None], "error")
    few = sample(held_out, np.random.default_rng(0))
    assert (few is held_out) is (expected in {0, n_rows})
    rows = np.concatenate(few.rows)
    assert len(rows) == pytest.approx(expected or n_rows, abs=2)
    assert y[rows].mean() == pytest.approx(y.mean(), rel=0.02)


CHECKED = [
    ClassEnsemble([LogisticRegression(), DecisionTreeClassifier(random_state=0)], [0.75, 0.25]),
    NumberEnsemble([Ridge(), DecisionTreeRegressor(random_state=0)], [0.5, 0.5]),
]
X = np.random.default_rng(0).random((40, 3))
Y = np.array(["no", "yes"])[np.random.default_rng(1).integers(0, 2, 40)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        pair
        for ensemble in CHECKED
        for pair in estimator_checks_generator(ensemble, mark=None)
        if pair[1].func.__name__ != "check_array_api_input"  # which needs an array library
    ],
)
def test_ensemble_passes_the_checks_of_scikit_learn(estimator, check) -> None:
    check(estimator)


def test_ensemble_predicts_the_weighted_mean() -> None:
    models = [LogisticRegression().fit(X, Y), LinearSVC().fit(X, Y)]
    ensemble = ClassEnsemble.of_fitted(models, [0.75, 0.25])
    votes = np.eye(2)[(models[1].predict(X) == "yes").astype(int)]
    blended = 0.75 * models[0].predict_proba(X) + 0.25 * votes
    np.testing.assert_allclose(ensemble.predict_proba(X), blended)
    assert (ensemble.predict(X) == np.array(["no", "yes"])[blended.argmax(axis=1)]).all()
    rows = np.arange(10.0)[:, None]
    lines = [LinearRegression().fit(rows, k * rows[:, 0]) for k in (1, 3)]
    of_numbers = NumberEnsemble.of_fitted(lines, [0.75, 0.25])
    np.testing.assert_allclose(of_numbers.predict(rows), 1.5 * rows[:, 0], atol=1e-12)


def test_ensemble_of_fitted_models_equals_a_fitted_ensemble() -> None:
    given, weights = [LogisticRegression(), DecisionTreeClassifier(random_state=0)], [3.0, 2.0]
    fitted = ClassEnsemble(given, weights).fit(X, Y)
    assert (fitted.members, fitted.weights) == (given, weights)
    assert not any(hasattr(member, "classes_") for member in given)
    assert fitted.weights_.tolist() == [0.6, 0.4]
    made = ClassEnsemble.of_fitted([clone(member).fit(X, Y) for member in given], weights)
    np.testing.assert_array_equal(made.predict_proba(X), fitted.predict_proba(X))
    again = clone(made)
    with pytest.raises(NotFittedError):
        again.predict(X)
    np.testing.assert_array_equal(again.fit(X, Y).predict_proba(X), fitted.predict_proba(X))


def test_members_with_different_classes_are_refused() -> None:
    members = [LogisticRegression().fit(X, Y), DecisionTreeClassifier().fit(X, Y == "yes")]
    with pytest.raises(ValueError, match="member 1"):
        ClassEnsemble.of_fitted(members, [0.5, 0.5])
    with pytest.raises(ValueError, match="member 0"):
        ClassEnsemble.of_fitted([Ridge().fit(X, X[:, 0])])


@pytest.mark.parametrize("weights", [[1.0], [0.5, -0.5], [0.0, 0.0], [0.5, float("nan")]])
def test_invalid_weights_are_refused(weights) -> None:
    members = [LogisticRegression(), DecisionTreeClassifier()]
    with pytest.raises(ValueError, match="weights"):
        ClassEnsemble(members, weights).fit(X, Y)
    with pytest.raises(ValueError, match="weights"):
        ClassEnsemble.of_fitted([member.fit(X, Y) for member in members], weights)


def test_member_with_invalid_predictions_is_an_error_that_names_the_member() -> None:
    members = [m().fit(X, Y) for m in (hostile_models.Plain, hostile_models.NanScores)]
    with pytest.raises(InvalidPredictions, match="NanScores"):
        ClassEnsemble.of_fitted(members).predict(X)
    numbers = [m().fit(X, X[:, 0]) for m in (hostile_models.Number, hostile_models.NumberNan)]
    with pytest.raises(InvalidPredictions, match="NumberNan"):
        NumberEnsemble.of_fitted(numbers).predict(X)
