import numpy as np
import pytest
from sklearn.datasets import make_classification, make_regression
from sklearn.linear_model import LinearRegression, LogisticRegression, Perceptron
from sklearn.metrics import get_scorer, roc_auc_score

from prefect_tune.optimizers import UnknownName
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.objective.metric import Predictions, metric_named
from prefect_tune.tasks.objective.predictions import predictions_of
from prefect_tune.tasks.objective.scorers import OF_CLASSES

RNG = np.random.default_rng(0)


def test_error_is_the_percentage_of_wrong_labels() -> None:
    y, label = np.array([0, 1, 1, 0]), np.array([0, 1, 0, 1])
    assert metric_named("error").loss(y, Predictions(label), 2) == 50.0


def test_error_of_chance_is_that_of_the_largest_class() -> None:
    objective = metric_named("error").objective(np.array([0, 0, 0, 1]), 2)
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


OF_TWO = ("accuracy", "f1", "precision", "recall", "average_precision", "neg_log_loss",
          "neg_brier_score", "matthews_corrcoef", "balanced_accuracy", "roc_auc")  # fmt: skip
OF_THREE = ("accuracy", "f1_macro", "f1_weighted", "neg_log_loss", "roc_auc_ovr", "top_k_accuracy")
OF_NUMBERS = ("r2", "neg_mean_absolute_error", "neg_root_mean_squared_error", "explained_variance")


@pytest.mark.parametrize(
    ("name", "n_classes"), [*((n, 2) for n in OF_TWO), *((n, 3) for n in OF_THREE)]
)
def test_scorers_of_classes_are_scikit_learns(name, n_classes) -> None:
    X, y = make_classification(
        200, n_informative=5, n_classes=n_classes, flip_y=0.3, random_state=0
    )
    model = LogisticRegression().fit(X, y)
    loss = metric_named(name).loss(y, predictions_of(model, X, np.unique(y)), n_classes)
    score = get_scorer(name)(model, X, y)
    assert loss == pytest.approx(-score if name.startswith("neg_") else 1 - score)


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_scorers_of_numbers_are_scikit_learns(name) -> None:
    X, y = make_regression(100, 5, noise=20.0, random_state=0)
    model = LinearRegression().fit(X, y)
    metric = metric_named(name)
    score = get_scorer(name)(model, X, y)
    loss = metric.loss(y, predictions_of(model, X, np.array([])), 0)
    assert loss == pytest.approx(-score if name.startswith("neg_") else 1 - score)
    assert metric.target == "numbers"
    assert loss < metric.objective(y, 0).chance <= metric.upper


@pytest.mark.parametrize("name", OF_TWO)
def test_chance_is_what_guessing_the_larger_class_gives(name) -> None:
    y = np.array([0] * 30 + [1] * 10)
    objective = metric_named(name).objective(y, 2)
    assert objective.lower <= objective.chance <= objective.upper
    expected = {"accuracy": 0.25, "f1": 1.0, "average_precision": 0.75, "roc_auc": 0.5}
    assert objective.chance == pytest.approx(expected.get(name, objective.chance))


@pytest.mark.parametrize("name", ["f1", "precision", "recall", "average_precision", "neg_log_loss"])
def test_the_positive_class_can_be_either(name) -> None:
    y, p = RNG.integers(0, 2, 80), RNG.random(80)
    said = Predictions((p > 0.5).astype(np.int32), np.column_stack([1 - p, p]))
    turned = Predictions(1 - said.label, said.score[:, ::-1])
    first = metric_named(name, positive=0).loss(y, said, 2)
    assert first == pytest.approx(metric_named(name, positive=1).loss(1 - y, turned, 2))


def test_a_scorer_that_needs_probabilities_says_so() -> None:
    X, y = make_classification(100, random_state=0)
    said = predictions_of(Perceptron().fit(X, y), X, np.unique(y))
    with pytest.raises(ValueError, match="neg_log_loss needs probabilities"):
        metric_named("neg_log_loss").loss(y, said, 2)


def test_a_metric_of_two_classes_is_refused_for_three() -> None:
    with pytest.raises(BadInput, match="--metric f1 is not defined for these 3 classes"):
        metric_named("f1").objective(np.array([0, 1, 2, 2]), 3)


def test_a_metric_that_all_models_win_is_refused() -> None:
    with pytest.raises(
        BadInput, match="--metric top_k_accuracy is not defined for these 2 classes"
    ):
        metric_named("top_k_accuracy").objective(np.array([0, 1, 1]), 2)
    assert metric_named("top_k_accuracy").objective(np.array([0, 1, 2]), 3).chance > 0


@pytest.mark.parametrize("name", ["error", "auroc", *OF_CLASSES])
def test_losses_of_classes_keep_their_bounds(name) -> None:
    metric = metric_named(name)
    rng = np.random.default_rng(1)
    n_classes = 2
    for _ in range(20):
        y = np.concatenate([[0, 1], rng.integers(0, n_classes, 20)])
        score = rng.dirichlet(np.full(n_classes, 0.3), len(y))
        said = Predictions(score.argmax(axis=1).astype(np.int32), score)
        assert metric.lower <= metric.loss(y, said, n_classes) <= metric.upper


@pytest.mark.parametrize("name", ["adjusted_rand_score", "positive_likelihood_ratio", "f1_samples"])
def test_scorers_that_are_no_measure_of_predictions_are_unknown(name) -> None:
    with pytest.raises(UnknownName, match=f"unknown metric '{name}'"):
        metric_named(name)
